"""Azure on 127.0.0.1: retail prices, compute SKUs and Resource Graph, which reject undocumented
requests.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from azure.mgmt.compute.operations._operations import build_resource_skus_list_request
from azure.mgmt.resourcegraph.models import QueryRequest
from azure.mgmt.resourcegraph.operations._resource_graph_client_operations import (
    build_resources_request,
)

from pricing_data.sources.base import FetchRequest
from pricing_data.units import NANOS_PER_DOLLAR, format_time, to_datetime
from spotctl.clouds.azure.cloud import AzureSettings
from spotctl.clouds.azure.prices import AzureSource
from tests.servers.loopback import Fault, LoopbackServer, Reply, Request, serving
from tests.servers.pulling import Pulled, pulled

SUBSCRIPTION = "5f1c2a52-0000-4000-8000-0123456789ab"
RETAIL = "/api/retail/prices"
SKUS = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/skus"
GRAPH = "/providers/Microsoft.ResourceGraph/resources"
PRICES = "microsoft.compute/skuspotpricehistory/ostype/location"
EVICTIONS = "microsoft.compute/skuspotevictionrate/location"

Row = dict[str, Any]

_ROOTS = {"id", "name", "type", "location", "sku", "properties"}


class Refused(Exception):
    """A request that Azure would answer with an error."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.reply = azure_error(code, message, status)


def azure_error(code: str, message: str = "no", status: int = 400, **headers: str) -> Reply:
    """Azure's error answer."""
    return Reply.of_json({"error": {"code": code, "message": message}}, status, **headers)


@dataclass
class AzureCloud:
    """The content of Azure in a test. `page_limit` is the largest page, whatever the request
    says."""

    retail: list[Row] = field(default_factory=list)
    skus: list[Row] = field(default_factory=list)
    spot: list[Row] = field(default_factory=list)
    denied_regions: set[str] = field(default_factory=set)
    page_limit: int = 1000
    disorder: random.Random = field(default_factory=lambda: random.Random(0))

    def answer(self, request: Request) -> Reply:
        routes: dict[tuple[str, str], Callable[[Request], Row]] = {
            ("GET", RETAIL): self._price_list,
            ("GET", SKUS): self._sku_list,
            ("POST", GRAPH): self._graph,
        }
        try:
            if "authorization" in request.headers:
                raise Refused("TokenInClear", "a token came over plain HTTP")
            if (request.method, request.path) not in routes:
                raise Refused("SubscriptionNotFound", f"nothing at {request.path}", 404)
            return Reply.of_json(routes[request.method, request.path](request))
        except Refused as refused:
            return refused.reply

    def _price_list(self, request: Request) -> Row:
        asked = _parameters(request, {"api-version", "$filter"}, {"$skip"})
        if asked["api-version"] != "2023-01-01-preview":
            raise Refused("InvalidVersion", asked["api-version"])
        wanted = _equalities(asked["$filter"])
        fitting = [item for item in self.retail if wanted.items() <= item.items()]
        start = int(asked.get("$skip", "0"))
        page = fitting[start : start + self.page_limit]
        end = start + len(page)
        link = _link(request, asked | {"$skip": str(end)}) if end < len(fitting) else None
        return {"BillingCurrency": "USD", "Items": page, "NextPageLink": link, "Count": len(page)}

    def _sku_list(self, request: Request) -> Row:
        asked = _parameters(request, {"api-version", "$filter"}, {"$skiptoken"})
        _require_version(asked, build_resource_skus_list_request(subscription_id=SUBSCRIPTION).url)
        location = re.fullmatch(r"location eq '([a-z0-9]+)'", asked["$filter"])
        if not location:
            raise Refused("InvalidFilter", asked["$filter"])
        self._require_rights(location[1])
        fitting = [sku for sku in self.skus if location[1] in sku.get("locations", [location[1]])]
        start = int(asked.get("$skiptoken", "0"))
        end = start + self.page_limit
        link = (
            {"nextLink": _link(request, asked | {"$skiptoken": str(end)})}
            if end < len(fitting)
            else {}
        )
        return {"value": fitting[start:end], **link}

    def _graph(self, request: Request) -> Row:
        _require_version(
            _parameters(request, {"api-version"}, set()), build_resources_request().url
        )
        body = request.json()
        understood = QueryRequest.deserialize(body)
        if (
            understood.serialize() != body
            or understood.subscriptions != [SUBSCRIPTION]
            or understood.options is None
        ):
            raise Refused("InvalidRequest", f"{body} is not a query of the subscription")
        options = understood.options
        if (
            options.result_format != "objectArray"
            or options.top is None
            or not 1 <= options.top <= 1000
        ):
            raise Refused("InvalidOptions", f"{body['options']}")
        rows = self._run(understood.query)
        start = self._resume(options.skip_token, understood.query)
        page = rows[start : start + min(options.top, self.page_limit)]
        end = start + len(page)
        token = {"$skipToken": f"{end} {understood.query}"} if end < len(rows) else {}
        return {
            "totalRecords": len(rows),
            "count": len(page),
            "resultTruncated": "false",
            "data": page,
            "facets": [],
            **token,
        }

    def _resume(self, token: str | None, query: str) -> int:
        start, _, of_query = (token or f"0 {query}").partition(" ")
        if of_query != query:
            raise Refused("InvalidToken", "the token belongs to another query")
        return int(start)

    def _run(self, query: str) -> list[Row]:
        """The supported operators of the query language; all others are rejected."""
        table, *stages = (stage.strip() for stage in query.split("|"))
        if table != "SpotResources":
            raise Refused("DisallowedLogicalTableName", table)
        # Without an order, each call returns the rows in a different order.
        rows = self.disorder.sample(self.spot, len(self.spot))
        for stage in stages:
            rows = self._stage(stage, rows)
        return rows

    def _stage(self, stage: str, rows: list[Row]) -> list[Row]:
        operator, _, rest = stage.partition(" ")
        if where := re.fullmatch(r"where (type|location) =~ '([^']*)'", stage):
            column, value = where.groups()
            if column == "location":
                self._require_rights(value)
            return [row for row in rows if row[column].lower() == value.lower()]
        if operator == "project":
            columns = [_column(text) for text in rest.split(", ")]
            return [{name: read(row) for name, read in columns} for row in rows]
        if stage == "distinct location":
            return [{"location": location} for location in {row["location"]: None for row in rows}]
        if order := re.fullmatch(r"order by (\w+) asc", stage):
            return sorted(rows, key=lambda row: str(row[order[1]]))
        raise Refused("ParserFailure", f"not simulated: {stage}")

    def _require_rights(self, region: str) -> None:
        if region in self.denied_regions:
            raise Refused("AuthorizationFailed", f"the client may not read in {region}", 403)


def _parameters(request: Request, needed: set[str], allowed: set[str]) -> dict[str, str]:
    names = set(request.query)
    if not needed <= names <= needed | allowed or any(
        len(values) > 1 for values in request.query.values()
    ):
        raise Refused(
            "InvalidQueryParameters",
            f"{sorted(names)} are not {sorted(needed)} and perhaps {sorted(allowed)}",
        )
    return {name: values[0] for name, values in request.query.items()}


def _require_version(asked: dict[str, str], sdk_url: str) -> None:
    expected = parse_qs(urlsplit(sdk_url).query)["api-version"]
    if [asked["api-version"]] != expected:
        raise Refused("InvalidApiVersionParameter", f"{asked['api-version']} is not {expected}")


def _equalities(filters: str) -> Row:
    """The fields in an OData filter of `eq` and `and`; comparisons are case-sensitive, as
    documented.
    """
    wanted = {}
    for part in filters.split(" and "):
        equal = re.fullmatch(r"(serviceName|armRegionName|armSkuName|priceType) eq '([^']*)'", part)
        if not equal:
            raise Refused("BadRequest", f"invalid OData parameters supplied: {part}")
        wanted["type" if equal[1] == "priceType" else equal[1]] = equal[2]
    return wanted


def _link(request: Request, parameters: dict[str, str]) -> str:
    return f"http://{request.headers['host']}{request.path}?{urlencode(parameters)}"


def _column(text: str) -> tuple[str, Callable[[Row], object]]:
    matched = re.fullmatch(r"(?:(\w+) = )?(?:tostring\(([\w.]+)\)|([\w.]+))", text)
    path = (matched[2] or matched[3]).split(".") if matched else [""]
    if not matched or path[0] not in _ROOTS:
        raise Refused("InvalidQuery", f"cannot resolve {text}")

    def read(row: Row) -> object:
        value: Any = row
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return matched[1] or path[-1], read


def retail_item(
    region: str, size: str, price: int, start: int, *, kind: str = "", **changes: object
) -> Row:
    """An item of the price list; `kind` follows the size in the meter's name (`Spot`, `Low
    Priority`).
    """
    meter = f"{size.partition('_')[2].replace('_', ' ')} {kind}".strip()
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price / NANOS_PER_DOLLAR,
        "unitPrice": price / NANOS_PER_DOLLAR,
        "armRegionName": region,
        "location": region.upper(),
        "effectiveStartDate": format_time(start),
        "meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName": meter,
        "productName": "Virtual Machines Some Series",
        "skuName": meter,
        "serviceName": "Virtual Machines",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": False,
        "armSkuName": size,
        **changes,
    }


def family_of(size: str) -> str:
    """The name of the quota of a size's family, such as `standardDSv5Family`."""
    match = re.fullmatch(r"Standard_([A-Z]+)\d+([a-z]*)(?:_\w+?)??(?:_(v\d+))?", size)
    return f"standard{match[1]}{match[2].upper()}{match[3] or ''}Family" if match else ""


def sku(region: str, size: str, **capabilities: str) -> Row:
    """A machine in the list of compute SKUs."""
    return {
        "resourceType": "virtualMachines",
        "name": size,
        "family": family_of(size),
        "locations": [region],
        "capabilities": [{"name": name, "value": value} for name, value in capabilities.items()],
        "restrictions": [],
    }


def price_row(region: str, size: str, os_name: str, points: list[tuple[int, int]]) -> Row:
    """A row of price history, its points newest first."""
    name = size.lower()
    return {
        "id": f"/providers/{PRICES}/{name}/{os_name}/{region}",
        "type": PRICES,
        "location": region,
        "sku": {"name": name},
        "properties": {
            "osType": os_name,
            "spotPrices": [
                {
                    "priceUSD": price / NANOS_PER_DOLLAR,
                    # .NET writes seven decimals.
                    "effectiveDate": f"{to_datetime(time):%Y-%m-%dT%H:%M:%S.%f}0Z",
                }
                for time, price in sorted(points, reverse=True)
            ],
        },
    }


def eviction_row(region: str, size: str, band: object) -> Row:
    """A row of eviction rates."""
    name = size.lower()
    return {
        "id": f"/providers/{EVICTIONS}/{name}/{region}",
        "type": EVICTIONS,
        "location": region,
        "sku": {"name": name},
        "properties": {"evictionRate": band},
    }


@dataclass
class AzureWorld:
    """Azure as a test sees it: content, requests received, and scheduled faults."""

    cloud: AzureCloud
    server: LoopbackServer

    def breaks(self, *faults: Fault) -> None:
        """Schedules faults."""
        self.server.faults.extend(faults)

    def settings(self, **changes: object) -> AzureSettings:
        """Settings with this server's addresses and short delays between retries."""
        found: dict[str, Any] = {
            "subscription": SUBSCRIPTION,
            "management_endpoint": self.server.url,
            "retail_prices_url": self.server.url + RETAIL,
            "retries": 4,
            "backoff_seconds": 0.001,
        }
        return AzureSettings(**found | changes)

    def pull(
        self, request: FetchRequest, source: AzureSource | None = None
    ) -> dict[tuple[str, str], Pulled]:
        """The result of each task of a request, by region and name."""
        tasks = (source or AzureSource(self.settings())).tasks(request)
        return {(task.region, task.what): pulled(task) for task in tasks}


@contextmanager
def running_azure(environment: pytest.MonkeyPatch) -> Iterator[AzureWorld]:
    """Runs Azure for the duration of a `with` block; the environment points nowhere else."""
    for name in list(os.environ):
        if name.startswith(("AZURE_", "IDENTITY_", "MSI_")) or name.upper().endswith("_PROXY"):
            environment.delenv(name)
    cloud = AzureCloud()
    with serving(cloud) as server:
        yield AzureWorld(cloud, server)
