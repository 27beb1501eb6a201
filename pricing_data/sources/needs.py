"""The data that each source of prices brings, the account that the source needs, and the effort of a fetch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pricing_data.units import DAY


@dataclass(frozen=True, slots=True)
class SourceNeeds:
    """One part of a source: `needs` is empty where no account is needed."""

    cloud: str
    """The cloud."""
    what: str
    """The data."""
    needs: str
    """The account or credentials needed; empty if none are."""
    note: str = ""
    """Where the data comes from, and what it is used for."""


SOURCES = (
    SourceNeeds("aws", "interruption buckets and savings", "", "Spot Advisor; estimates spot prices"),
    SourceNeeds("aws", "on-demand prices of named regions", "", "public price list; several hundred MB per region"),
    SourceNeeds("aws", "spot prices of 90 days, instance types", "AWS_ACCESS_KEY_ID, a profile, or `aws sso login`"),
    SourceNeeds("azure", "spot and on-demand prices", "", "retail price list; complete"),
    SourceNeeds(
        "azure", "spot prices of 90 days, eviction rates", "`az login` or AZURE_CLIENT_SECRET; AZURE_SUBSCRIPTION_ID"
    ),
    SourceNeeds(
        "gcp",
        "spot prices and preemption rates, on-demand prices",
        "`gcloud auth application-default login`; GOOGLE_CLOUD_PROJECT",
        "on-demand prices need the extra gcp-pricing",
    ),
    SourceNeeds(
        "gcp",
        "spot and on-demand prices of shipped machine types",
        "GOOGLE_API_KEY, a free key of any project",
        "public price list; needs the extra gcp-pricing",
    ),
    SourceNeeds("gcp", "estimated spot prices", "", "shipped: list price less the published saving"),
    SourceNeeds("files", "histories, price lists, snapshots", "", "prices import, prices snapshot add"),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """About how much one task asks for: calls, rows that are kept, and megabytes that are sent."""

    calls: float = 1
    rows: float = 0
    megabytes: float = 0.1

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.calls + other.calls, self.rows + other.rows, self.megabytes + other.megabytes)

    def scaled(self, share: float) -> Effort:
        return Effort(max(1.0, self.calls * share), self.rows * share, self.megabytes * share)


# Orders of magnitude per region, all types and Linux only; histories are per day.
_TASKS = {
    ("aws", "interruption buckets"): Effort(1, 30_000, 10),
    ("aws", "public price list"): Effort(1, 2_000, 300),
    ("aws", "spot prices"): Effort(6, 6_000, 2),
    ("aws", "instance types"): Effort(10, 1_000, 5),
    ("aws", "on-demand prices"): Effort(15, 1_500, 10),
    ("azure", "prices"): Effort(12, 2_500, 6),
    ("azure", "spot history"): Effort(3, 2_000, 2),
    ("azure", "machine types"): Effort(2, 1_000, 3),
    ("gcp", "spot prices and preemption rates"): Effort(150, 5_000, 3),
    ("gcp", "public price list"): Effort(10, 3_000, 12),
    ("gcp", "machine types"): Effort(4, 200, 1),
    ("gcp", "on-demand prices"): Effort(10, 200, 12),
}
_DAILY = {("aws", "spot prices")}
_CALLS_PER_SECOND = 5
_MEGABYTES_PER_SECOND = 5
_BYTES_PER_ROW = 8


def effort(tasks: Iterable[tuple[str, str]], span: int, *, some_types: bool) -> Effort:
    """The effort of tasks given as (cloud, what), for a history of this length."""
    total = Effort(0, 0, 0)
    for task in tasks:
        whole = _TASKS.get(task, Effort())
        if task in _DAILY:
            whole = whole.scaled(max(1.0, span / DAY))
        # The public lists come whole, however few of their types are wanted.
        total += whole.scaled(0.1) if some_types and task[1] not in ("public price list", "prices") else whole
    return total


def minutes(total: Effort, workers: int) -> float:
    """About how long it takes."""
    return (total.calls / _CALLS_PER_SECOND / max(workers, 1) + total.megabytes / _MEGABYTES_PER_SECOND) / 60


def disk_megabytes(total: Effort) -> float:
    """About how much the store grows."""
    return total.rows * _BYTES_PER_ROW / 1e6
