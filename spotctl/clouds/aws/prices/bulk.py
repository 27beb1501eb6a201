"""AWS's public price list of a region: one CSV of several hundred megabytes, read line by line, without an account."""

import csv
from collections.abc import Iterator
from functools import partial

import httpx

from pricing_data.errors import NoAnswer, UnknownResource
from pricing_data.fetched_rows import FetchedRows
from pricing_data.sources.base import FetchRequest, Rejects
from spotctl.clouds.aws.cloud import AwsSettings
from spotctl.clouds.aws.prices.records import listed_price
from spotctl.clouds.errors import on_one_line

_PATH = "/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
_STEP = 2000
_PREAMBLE = 20
_CURE = "fetch again later, or set aws_price_list_url in spotctl's settings"


def public_prices(settings: AwsSettings, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
    """The on-demand prices of a region, a few thousand at a time."""
    url = settings.price_list_url.rstrip("/") + _PATH.format(region=region)
    rejects = Rejects(f"aws/{region}: public price list")
    try:
        with httpx.stream("GET", url, timeout=settings.timeout_seconds, follow_redirects=True) as answer:
            if answer.status_code in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND):
                raise UnknownResource(f"aws/{region}: {url} does not exist", "check the region's name")
            answer.raise_for_status()
            rows = _table(answer.iter_lines(), url)
            prices = rejects.good(partial(listed_price, region), rows, lambda row: row.get("SKU"))
            step = []
            for price in prices:
                if request.wants_type(price.instance_type):
                    step.append(price)
                if len(step) >= _STEP:
                    yield FetchedRows(on_demand=tuple(step))
                    step = []
            yield FetchedRows(on_demand=tuple(step))
    except (httpx.HTTPError, httpx.InvalidURL, csv.Error) as error:
        raise NoAnswer(f"aws/{region}: {url} cannot be read: {on_one_line(error, 200)}", _CURE) from error
    rejects.report()


def _table(lines: Iterator[str], url: str) -> Iterator[dict[str, str]]:
    """The rows after a few lines about the list itself."""
    for number, line in enumerate(lines):
        names = next(csv.reader([line]), [])
        if names[:1] == ["SKU"]:
            yield from csv.DictReader(lines, fieldnames=names)
            return
        if number > _PREAMBLE:
            break
    raise NoAnswer(f"{url} has another format: no line begins with SKU", _CURE)
