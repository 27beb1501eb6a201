"""AWS on 127.0.0.1: moto's application behind the loopback server, with what moto lacks.

moto describes regions, zones and instance types well. Its spot price history is canned, and
placement scores, the Price List and the Spot Advisor's file do not exist there: these are simulated
here as AWS documents them.
"""

from __future__ import annotations

import csv
import io
import json
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import parse_qsl, unquote, urlencode
from zlib import crc32

import pytest
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.general import General
from moto.ec2.responses.spot_instances import SpotInstances
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import Client

from pricing_data.sources.base import FetchRequest
from pricing_data.units import to_datetime, to_micros
from spotctl.clouds.aws.cloud import AwsSettings
from spotctl.clouds.aws.prices import AwsSource
from tests.servers.loopback import Fault, LoopbackServer, Reply, Request, serving
from tests.servers.pulling import Pulled, pulled

ADVISOR_PATH = "/spot-advisor-data.json"
_BULK = "/offers/v1.0/aws/AmazonEC2/current/"
_PAGES = "/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel/"
_BULK_COLUMNS = (
    "SKU,OfferTermCode,RateCode,TermType,PriceDescription,EffectiveDate,StartingRange,EndingRange,Unit,PricePerUnit,"
    "Currency,RelatedTo,LeaseContractLength,PurchaseOption,OfferingClass,Product "
    "Family,serviceCode,Location,"
    "Location Type,Instance Type,Current Generation,Instance Family,vCPU,Physical Processor,Clock "
    "Speed,Memory,Storage,"
    "Network Performance,Processor Architecture,Tenancy,EBS Optimized,Operating System,License "
    "Model,CapacityStatus,Pre Installed S/W,Region Code"
).split(",")
_PRICE_LIST = "AWSPriceListService."

# Making moto's application loads its whole description of EC2; one serves every test of a process.
_MOTO = DomainDispatcherApplication(create_backend_app)
_MOTO_LOCK = threading.RLock()


class SpotPriceRow(NamedTuple):
    """A spot price change, with the API's field names."""

    region: str
    zone: str
    instance_type: str
    product: str
    time: int
    price: str

    @property
    def market(self) -> tuple[str, str, str]:
        return self.zone, self.instance_type, self.product


def answered_by_moto(request: Request, account: str | None = None) -> Reply:
    """moto's answer; accounts share nothing."""
    headers = {**request.headers, **({"x-moto-account-id": account} if account else {})}
    query = urlencode(request.query, doseq=True)
    path = f"{request.path}?{query}" if query else request.path
    # moto is not made for several threads: its serializers iterate over what others fill.
    with _MOTO_LOCK:
        response = Client(_MOTO).open(
            path, method=request.method, headers=list(headers.items()), data=request.body
        )
    return Reply(response.status_code, response.data, dict(response.headers.items()))


@dataclass
class AwsCloud:
    """The content of AWS in a test. `page_limit` is the largest page, whatever the request says."""

    prices: list[SpotPriceRow] = field(default_factory=list)
    scores: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    products: list[dict[str, Any]] = field(default_factory=list)
    advisor: dict[str, Any] = field(default_factory=dict)
    bulk: dict[str, bytes] = field(default_factory=dict)
    pages: dict[str, dict[str, str]] = field(default_factory=dict)
    """By location, the prices of types behind AWS's price pages."""
    advisor_changed: str = "Mon, 01 Jan 2024 06:00:00 GMT"
    page_limit: int = 1000

    def answer(self, request: Request) -> Reply:
        target = request.headers.get("x-amz-target", "")
        if request.path == ADVISOR_PATH:
            return Reply(
                200, json.dumps(self.advisor).encode(), {"Last-Modified": self.advisor_changed}
            )
        if request.path.startswith(_PAGES):
            location = unquote(request.path.removeprefix(_PAGES)).partition("/")[0]
            prices = self.pages.get(location, {})
            entries = {name: {"Instance Type": name, "price": usd} for name, usd in prices.items()}
            return Reply(200, json.dumps({"manifest": {}, "regions": {location: entries}}).encode())
        if request.path.startswith(_BULK):
            content = self.bulk.get(request.path.removeprefix(_BULK).removesuffix("/index.csv"))
            return (
                Reply(403, b"<Error><Code>AccessDenied</Code></Error>")
                if content is None
                else Reply(200, content)
            )
        if target.startswith(_PRICE_LIST):
            return self._products(request.json())
        return answered_by_moto(request)

    def price_history(self, response: SpotInstances) -> ActionResult:
        """DescribeSpotPriceHistory: newest first, with the last change before StartTime, EndTime
        left out.
        """
        response.error_on_dryrun()
        wanted = _arguments(
            response,
            "StartTime",
            "EndTime",
            "InstanceTypes",
            "ProductDescriptions",
            "AvailabilityZone",
        )
        filters = response._filters_from_querystring()
        rows = [
            row
            for row in self.prices
            if row.region == response.region and _matches(row, wanted, filters)
        ]
        rows = in_force(rows, to_micros(wanted["StartTime"]), to_micros(wanted["EndTime"]))
        records = [
            {
                "AvailabilityZone": row.zone,
                "InstanceType": row.instance_type,
                "ProductDescription": row.product,
                "SpotPrice": row.price,
                "Timestamp": to_datetime(row.time),
            }
            for row in rows
        ]
        return self._ec2_page(response, "SpotPriceHistory", records, {**wanted, "Filters": filters})

    def placement_scores(self, response: SpotInstances) -> ActionResult:
        """GetSpotPlacementScores, by zone ids."""
        response.error_on_dryrun()
        wanted = _arguments(
            response, "InstanceTypes", "RegionNames", "SingleAvailabilityZone", "TargetCapacity"
        )
        assert wanted["SingleAvailabilityZone"], "only scores of zones are simulated"
        records = [
            {"Region": region, "AvailabilityZoneId": zone_id, "Score": score}
            for region in wanted["RegionNames"]
            for name in wanted["InstanceTypes"]
            for zone_id, score in self.scores.get((region, name), {}).items()
        ]
        return self._ec2_page(response, "SpotPlacementScores", records, wanted)

    def placement_groups(self, response: SpotInstances) -> ActionResult:
        """DescribePlacementGroups of an account that has none."""
        response.error_on_dryrun()
        return self._ec2_page(response, "PlacementGroups", [], {})

    def new_placement_group(self, response: SpotInstances) -> ActionResult:
        """CreatePlacementGroup as a dry run."""
        response.error_on_dryrun()
        raise NotImplementedError("only dry runs are simulated here")

    def _ec2_page(
        self,
        response: SpotInstances,
        holding: str,
        records: list[dict[str, Any]],
        asked: dict[str, Any],
    ) -> ActionResult:
        token, most = (
            response._get_param("NextToken"),
            response._get_param("MaxResults", self.page_limit),
        )
        page = _page(records, token, min(most, self.page_limit), repr(asked))
        if page is None:
            raise EC2ClientError(
                "InvalidParameterValue", f"the token {token} belongs to another request"
            )
        rows, following = page
        return ActionResult({holding: rows, "NextToken": following})

    def _products(self, asked: dict[str, Any]) -> Reply:
        wanted = {f["Field"]: f["Value"] for f in asked["Filters"] if f["Type"] == "TERM_MATCH"}
        if asked["ServiceCode"] != "AmazonEC2" or len(wanted) != len(asked["Filters"]):
            return price_list_error("InvalidParameterException", f"not simulated: {asked}")
        fitting = [p for p in self.products if wanted.items() <= p["product"]["attributes"].items()]
        most = min(asked.get("MaxResults", 100), self.page_limit)
        page = _page(fitting, asked.get("NextToken"), most, repr(wanted))
        if page is None:
            return price_list_error(
                "InvalidNextTokenException", "the token belongs to another request"
            )
        rows, following = page
        token = {"NextToken": following} if following else {}
        return Reply.of_json(
            {"FormatVersion": "aws_v1", "PriceList": [json.dumps(row) for row in rows], **token}
        )


@dataclass
class AwsWorld:
    """AWS as a test sees it: content, requests received, and scheduled faults."""

    cloud: AwsCloud
    server: LoopbackServer
    _usual: AwsSource | None = None

    def asked(self, action: str) -> list[dict[str, str]]:
        """The arguments of each request for an action, in the order received."""
        return [
            arguments_of(request)
            for request in self.server.requests
            if action_of(request) == action
        ]

    def breaks(self, *faults: Fault) -> None:
        """Schedules faults."""
        self.server.faults.extend(faults)

    def source(self, max_attempts: int = 3) -> AwsSource:
        """A source that uses this server."""
        return AwsSource(
            AwsSettings(
                price_list_url=self.server.url,
                spot_advisor_url=self.server.url + ADVISOR_PATH,
                max_attempts=max_attempts,
                backoff_seconds=0.001,
            )
        )

    def pull(self, what: str, request: FetchRequest, source: AwsSource | None = None) -> Pulled:
        """The result of one task of a request, from `source` or from a source kept for the test."""
        self._usual = self._usual or self.source()
        tasks = [task for task in (source or self._usual).tasks(request) if task.what == what]
        assert len(tasks) == 1, f"{len(tasks)} tasks are called {what}"
        return pulled(tasks[0])


@contextmanager
def running_aws(environment: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    """Runs AWS for the duration of a `with` block; boto3's environment points only to it."""
    cloud = AwsCloud()
    with (
        patch.object(SpotInstances, "describe_spot_price_history", _action(cloud.price_history)),
        patch.object(
            SpotInstances, "get_spot_placement_scores", _action(cloud.placement_scores), create=True
        ),
        patch.object(
            General, "describe_placement_groups", _action(cloud.placement_groups), create=True
        ),
        patch.object(
            General, "create_placement_group", _action(cloud.new_placement_group), create=True
        ),
        serving(cloud) as server,
    ):
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            environment.delenv(name)
        environment.setenv("AWS_ENDPOINT_URL", server.url)
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIDLOOPBACK")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "loopback")
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_CONFIG_FILE", os.devnull)
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        # botocore's delays between retries cannot be configured.
        environment.setattr(
            "botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0
        )
        yield AwsWorld(cloud, server)


def in_force(rows: list[SpotPriceRow], start: int, end: int) -> list[SpotPriceRow]:
    """The changes in [start, end) and, of each market, the last one before, newest first."""
    kept = []
    for _, of_market in groupby(
        sorted(rows, key=lambda r: (r.market, r.time)), key=lambda r: r.market
    ):
        changes = list(of_market)
        first = bisect_left([row.time for row in changes], start)
        kept += [row for row in changes[max(0, first - 1) :] if row.time < end]
    return sorted(kept, key=lambda row: row.time, reverse=True)


@dataclass
class AwsFault(Fault):
    """A fault of one action (`DescribeSpotPriceHistory`, `GetProducts`) in one region, or in all of
    them.
    """

    action: str = ""
    region: str = ""

    def strikes(self, request: Request) -> bool:
        of_action = self.action in ("", action_of(request))
        return of_action and self.region in ("", region_of(request)) and super().strikes(request)


def action_of(request: Request) -> str:
    """The action of a request."""
    return arguments_of(request).get("Action") or request.headers.get(
        "x-amz-target", ""
    ).removeprefix(_PRICE_LIST)


def arguments_of(request: Request) -> dict[str, str]:
    """The arguments of an EC2 request; none for the other APIs."""
    is_form = request.headers.get("content-type", "").startswith(
        "application/x-www-form-urlencoded"
    )
    return dict(parse_qsl(request.body.decode())) if is_form else {}


def region_of(request: Request) -> str:
    """The region that a request was signed for."""
    scope = request.headers.get("authorization", "").partition("Credential=")[2].split("/")
    return scope[2] if len(scope) > 2 else ""


def bulk_list(region: str, *rows: dict[str, str]) -> bytes:
    """A region's public price list: every row is a plain Linux machine on demand unless it says
    otherwise.
    """
    usual = {
        "TermType": "OnDemand",
        "EffectiveDate": "2026-01-01",
        "Unit": "Hrs",
        "Currency": "USD",
        "Product Family": "Compute Instance",
        "serviceCode": "AmazonEC2",
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "License Model": "No License required",
        "CapacityStatus": "Used",
        "Pre Installed S/W": "NA",
        "Region Code": region,
    }
    about = [
        ("FormatVersion", "v1.0"),
        (
            "Disclaimer",
            "This pricing list is for informational purposes only, says AWS, and not a quote.",
        ),
        ("Publication Date", "2026-01-10T00:00:00Z"),
        ("Version", "20260110000000"),
        ("OfferCode", "AmazonEC2"),
    ]
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([*about, _BULK_COLUMNS])
    for number, row in enumerate(rows):
        cells = {"SKU": f"SKU{number}", **usual, **row}
        writer.writerow([cells.get(column, "") for column in _BULK_COLUMNS])
    return out.getvalue().encode()


def ec2_error(code: str, message: str = "no", status: int = 400) -> Reply:
    """An error answer of EC2."""
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
        "<RequestID>0-0</RequestID></Response>"
    )
    return Reply(status, body.encode(), {"Content-Type": "text/xml"})


def price_history_of(*records: dict[str, str]) -> Reply:
    """A last page of DescribeSpotPriceHistory with records exactly as given, however wrong."""
    items = "".join(
        "<item>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in record.items())
        + "</item>"
        for record in records
    )
    body = (
        "<DescribeSpotPriceHistoryResponse><requestId>0-0</requestId>"
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet></DescribeSpotPriceHistoryResponse>"
    )
    return Reply(200, body.encode(), {"Content-Type": "text/xml"})


def price_list_error(code: str, message: str, status: int = 400) -> Reply:
    """An error answer of the Price List."""
    return Reply.of_json({"__type": code, "message": message}, status)


def _action(
    method: Callable[[SpotInstances], ActionResult],
) -> Callable[[SpotInstances], ActionResult]:
    # moto takes plain functions of its class for actions, not methods of another object.
    return lambda response: method(response)  # noqa: PLW0108


def _arguments(response: SpotInstances, *names: str) -> dict[str, Any]:
    return {name: response._get_param(name) for name in names}


def _matches(row: SpotPriceRow, wanted: dict[str, Any], filters: dict[str, Any]) -> bool:
    values = {
        "availability-zone": row.zone,
        "instance-type": row.instance_type,
        "product-description": row.product,
    }
    parameters = {
        "InstanceTypes": row.instance_type,
        "ProductDescriptions": row.product,
        "AvailabilityZone": row.zone,
    }
    return all(
        any(fnmatchcase(values[name], glob) for glob in globs) for name, globs in filters.items()
    ) and all(not wanted[name] or value in wanted[name] for name, value in parameters.items())


def _page(
    records: list[dict[str, Any]], token: str | None, most: int, asked: str
) -> tuple[list[dict[str, Any]], str | None] | None:
    """One page and the token of the next; None for a token that was given for other arguments."""
    mark = f"{crc32(asked.encode()):08x}"
    if token and not token.startswith(mark):
        return None
    start = int(token.partition("-")[2]) if token else 0
    following = f"{mark}-{start + most}" if start + most < len(records) else None
    return records[start : start + most], following
