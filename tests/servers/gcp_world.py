"""A small Google Cloud with random prices, and the expected result of a fetch."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from google.cloud import compute_v1

from pricing_data.availability import Interruption
from pricing_data.errors import CloudError
from pricing_data.fetched_rows import FetchedRows, PriceEvent
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest, FetchTask, Source
from pricing_data.units import DAY, HOUR, format_time, parse_time
from spotctl.clouds.gcp.cloud import GcpSettings
from spotctl.clouds.gcp.prices import GcpSource
from tests.servers.gcp import PROJECT, Gcp, history, machine, preempted, priced, sku
from tests.servers.loopback import LoopbackServer
from tests.servers.pulling import observed_events

IOWA, TAIWAN = "us-central1", "asia-east1"
NOW = parse_time("2026-09-20T10:30:00Z")
REQUEST = FetchRequest(since=NOW - 90 * DAY, until=NOW)
TYPES, SPOT, ON_DEMAND = "machine types", "spot prices and preemption rates", "on-demand prices"

MACHINES = [
    machine("n1-standard-4", 4, 15),
    machine("n2-standard-4", 4, 16),
    machine("e2-micro", 2, 1),
    machine("a2-ultragpu-1g", 12, 170, gpus=("nvidia-a100-80gb", 1), ssds=1),
    machine("t2d-standard-8", 8, 32),
]
NAMES = [held.name for held in MACHINES]
PUBLISHED = datetime(2026, 9, 20, 6, tzinfo=UTC)


def random_history(random: Random, region: str, name: str) -> compute_v1.CapacityHistoryResponse:
    """About a year of prices, contiguous up to now, and a month of daily preemption rates that ends
    in the future.
    """
    changes = sorted(random.sample(range(-300, 0), 12))
    bounds = [format_time(NOW - NOW % DAY + 7 * HOUR + day * DAY) for day in changes]
    prices = [
        priced(start, end, random.randrange(1, 5 * 10**9))
        for start, end in zip(bounds, [*bounds[1:], None], strict=True)
    ]
    random.shuffle(prices)
    days = [NOW - NOW % DAY + 7 * HOUR + day * DAY for day in range(-30, 1)]
    rates = [
        preempted(format_time(day), format_time(day + DAY), round(random.random(), 4))
        for day in days
    ]
    return history(region, name, prices, rates)


def random_world(random: Random) -> Gcp:
    """Two regions with the same machines, spread over zones, and random histories and rates."""
    zones = {
        IOWA: {
            "us-central1-a": MACHINES[:4],
            "us-central1-b": MACHINES[:],
            "us-central1-c": MACHINES[3:],
        },
        TAIWAN: {"asia-east1-a": MACHINES[:]},
    }
    histories = {
        (region, name): random_history(random, region, name) for region in zones for name in NAMES
    }
    both = [IOWA, TAIWAN]
    skus = []
    for prefix, usage, share in (("", "OnDemand", 1), ("Spot Preemptible ", "Preemptible", 4)):
        attached = " attached to Spot Preemptible VMs" if prefix else ""
        for series in (
            "N1 Predefined Instance",
            "N2 Instance",
            "E2 Instance",
            "A2 Instance",
            "T2D AMD Instance",
        ):
            nanos = random.randrange(10**7, 10**8) // share
            core, ram = (
                f"{prefix}{series} Core running in Americas",
                f"{prefix}{series} Ram running in Americas",
            )
            skus += [
                sku(core, nanos, both, usage=usage, effective=PUBLISHED),
                sku(ram, nanos // 8, both, "GiBy.h", usage, PUBLISHED),
            ]
        card = f"Nvidia Tesla A100 80GB GPU{attached} running in Americas"
        skus.append(
            sku(
                card,
                random.randrange(10**9, 9 * 10**9) // share,
                both,
                usage=usage,
                effective=PUBLISHED,
            )
        )
        skus.append(
            sku(
                f"SSD backed Local Storage{attached}",
                80_000_000 // share,
                both,
                "GiBy.mo",
                usage,
                PUBLISHED,
            )
        )
    return Gcp(zones=zones, histories=histories, skus=skus)


def source_at(server: LoopbackServer, deadline: float = 20.0) -> Source:
    return GcpSource(
        GcpSettings(
            PROJECT,
            server.url,
            server.url,
            call_timeout_seconds=20.0,
            first_retry_seconds=0.01,
            retry_deadline_seconds=deadline,
        )
    )


def task(
    source: Source, what: str, request: FetchRequest = REQUEST, region: str = IOWA
) -> FetchTask:
    (found,) = [
        task
        for task in source.tasks(replace(request, regions=request.regions or (region,)))
        if (task.what, task.region) == (what, region)
    ]
    return found


def pulled(task: FetchTask) -> tuple[FetchedRows, CloudError | None]:
    """The rows of a task, and its error if it failed."""
    steps: list[FetchedRows] = []
    failure: CloudError | None = None
    try:
        for fetched in task.pull():
            steps.append(fetched)  # noqa: PERF402  # keeps the rows before a failure
    except CloudError as error:
        failure = error
    assert "\n" not in str(failure)
    return FetchedRows.joined(steps), failure


def whole(task: FetchTask) -> FetchedRows:
    fetched, failure = pulled(task)
    assert failure is None
    return fetched


def events_of(fetched: FetchedRows) -> set[PriceEvent]:
    return set(observed_events(fetched))


def market(name: str, region: str = IOWA) -> Market:
    return Market("gcp", region, "-", name)


def held_events(gcp: Gcp, name: str, since: int, region: str = IOWA) -> set[PriceEvent]:
    """Directly from the server's content: every price in force after `since`, and the last one
    again now.
    """
    events = set()
    for record in gcp.histories[region, name].price_history:
        price = record.list_price.units * 10**9 + record.list_price.nanos
        times = [parse_time(record.interval.start_time)] + (
            [] if record.interval.end_time else [NOW]
        )
        if not record.interval.end_time or parse_time(record.interval.end_time) > since:
            events |= {PriceEvent(market(name, region), time, price) for time in times}
    return events


def held_rates(gcp: Gcp, name: str) -> set[Interruption]:
    records = [
        (parse_time(record.interval.end_time), record.preemption_rate)
        for record in gcp.histories[IOWA, name].preemption_history
    ]
    return {
        Interruption(market(name), "preemption-rate", end, rate, rate, "gcp capacity history")
        for end, rate in records
        if end <= NOW
    }


def rate(gcp: Gcp, description: str) -> int:
    (found,) = [one for one in gcp.skus if one.description == description]
    money = found.pricing_info[0].pricing_expression.tiered_rates[0].unit_price
    return int(money.units) * 10**9 + int(money.nanos)
