"""Bills as the three providers would write them for made-up machines, by hour or day, from ledger
rows.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, NANO_SECONDS_PER_DOLLAR, to_datetime
from spotctl.log.ledger.rows import LedgerRow
from tests.spotctl.show.costs.made import AWS, AZURE, GCP, NIGHT, MadeRun

Line = dict[str, str]
PLACES = Decimal("1e-10")

MARKETS: Mapping[str, Market] = {"aws": AWS[0], "gcp": GCP, "azure": AZURE}


def made_run(provider: str) -> MadeRun:
    """Three machines for some hours across midnight, at prices that change within hours; one is
    evicted.
    """
    market = MARKETS[provider]
    made = MadeRun("job-1", "job", NIGHT, provider=provider)
    made.begin()
    times = [NIGHT + i * 25 * 60_000_000 for i in range(100)]
    made.price(market, times, [100_000_000 + 7_000_000 * (i % 9) for i in range(100)])
    names = made.rent(market, 3, NIGHT + HOUR // 3)
    made.end_machines(names[:1], NIGHT + 5 * HOUR, "evicted")
    made.end_machines(names[1:], NIGHT + 23 * HOUR + HOUR // 2, "returned")
    made.finish(NIGHT + 24 * HOUR, clocks=10)
    return made


def lines(provider: str, rows: Sequence[LedgerRow]) -> list[Line]:
    """The lines of a bill: one per machine and hour (Azure: day) with a cost."""
    cut = DAY if provider == "azure" else HOUR
    sums: dict[tuple[str, int], Decimal] = {}
    for row in rows:
        for begin, share in _pieces(row, cut):
            key = (row.machine, begin)
            sums[key] = (
                sums.get(key, Decimal(0)) + Decimal(row.amount) * share / NANO_SECONDS_PER_DOLLAR
            )
    return [
        _WRITERS[provider](name, begin, begin + cut, amount.quantize(PLACES), i)
        for i, ((name, begin), amount) in enumerate(sorted(sums.items()))
        if amount
    ]


def _pieces(row: LedgerRow, cut: int) -> Iterator[tuple[int, Decimal]]:
    begin = row.begin // cut * cut
    while begin < row.end:
        inside = min(begin + cut, row.end) - max(begin, row.begin)
        yield begin, Decimal(inside) / (row.end - row.begin)
        begin += cut


def _iso(at: int) -> str:
    return f"{to_datetime(at):%Y-%m-%dT%H:%M:%SZ}"


def _aws(name: str, begin: int, end: int, amount: Decimal, number: int) -> Line:
    return {
        "identity/LineItemId": f"l{number}",
        "identity/TimeInterval": f"{_iso(begin)}/{_iso(end)}",
        "bill/BillingPeriodStartDate": "2026-06-01T00:00:00Z",
        "bill/BillingPeriodEndDate": "2026-07-01T00:00:00Z",
        "lineItem/UsageAccountId": "123456789012",
        "lineItem/LineItemType": "Usage",
        "lineItem/UsageStartDate": _iso(begin),
        "lineItem/UsageEndDate": _iso(end),
        "lineItem/ProductCode": "AmazonEC2",
        "lineItem/UsageType": "SpotUsage:c6i.2xlarge",
        "lineItem/Operation": "RunInstances:SV001",
        "lineItem/ResourceId": name,
        "lineItem/CurrencyCode": "USD",
        "lineItem/UnblendedCost": f"{amount:f}",
        "resourceTags/user:spotctl-run": "job-1",
    }


def _gcp(name: str, begin: int, end: int, amount: Decimal, number: int) -> Line:
    return {
        "billing_account_id": "010101-F0FFF0-61C528",
        "service.description": "Compute Engine",
        "sku.id": f"{number % 1}",
        "sku.description": "Spot Preemptible N2 Instance Core running in Americas",
        "usage_start_time": f"{to_datetime(begin):%Y-%m-%d %H:%M:%S} UTC",
        "usage_end_time": f"{to_datetime(end):%Y-%m-%d %H:%M:%S} UTC",
        "labels": json.dumps([{"key": "spotctl-run", "value": "job-1"}]),
        "resource.name": name,
        "resource.global_name": f"//compute.googleapis.com/projects/p/zones/us-central1-a/instances/{name}",
        "cost": f"{amount:f}",
        "currency": "USD",
        "credits": json.dumps([{"name": "promotion", "amount": -0.5}]),
        "invoice.month": "202606",
        "cost_type": "regular",
    }


def _azure(name: str, begin: int, end: int, amount: Decimal, number: int) -> Line:
    group = "/subscriptions/5c1f/resourceGroups/spotctl/clouds/Microsoft.Compute/virtualMachines"
    return {
        "SubscriptionId": "5c1f",
        "BillingPeriodStartDate": "06/01/2026",
        "BillingPeriodEndDate": "06/30/2026",
        "Date": f"{to_datetime(begin):%m/%d/%Y}",
        "MeterCategory": "Virtual Machines",
        "MeterId": f"meter-{number * (end < begin)}",
        "MeterName": "D8s v5 Spot",
        "ResourceId": f"{group}/{name.upper()}",
        "ChargeType": "Usage",
        "PricingModel": "Spot",
        "CostInBillingCurrency": f"{amount:f}",
        "BillingCurrency": "USD",
        "Tags": '"spotctl-run": "job-1"',
    }


_WRITERS: Mapping[str, Callable[[str, int, int, Decimal, int], Line]] = {
    "aws": _aws,
    "gcp": _gcp,
    "azure": _azure,
}

COST = {"aws": "lineItem/UnblendedCost", "gcp": "cost", "azure": "CostInBillingCurrency"}
CURRENCY = {"aws": "lineItem/CurrencyCode", "gcp": "currency", "azure": "BillingCurrency"}
RESOURCE = {"aws": "lineItem/ResourceId", "gcp": "resource.name", "azure": "ResourceId"}
TAGS = {"aws": "resourceTags/user:spotctl-run", "gcp": "labels", "azure": "Tags"}


def as_csv(bill: Sequence[Line]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(bill[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(bill)
    return text.getvalue()


PROVIDERS = ("aws", "gcp", "azure")
ROWS = {provider: made_run(provider).rows() for provider in PROVIDERS}
WHOLE = {provider: lines(provider, ROWS[provider]) for provider in PROVIDERS}
