"""The account of a run: its timeline, the rows of its ledger, and their sums.

A timeline is a run's times, outcome, machines, stages, evictions and plan. Sums add up over runs;
their steps lead from the on-demand cost of the same work to the amount paid.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from pricing_data.market import Market
from spotctl.files.job.values import RAY
from spotctl.home.cloud import is_replayed
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, SameWork, Use, nano_dollars
from spotctl.log.outcomes import FAILED

NOT_MACHINE_TIME = frozenset(
    {ChargeKind.DISK, ChargeKind.ADDRESS, ChargeKind.EGRESS, ChargeKind.UNKNOWN}
)
"""Charges for anything but the time of machines."""

STEPS = (
    "spot discount",
    "refunds",
    "start-up",
    "waiting",
    "rest of paid hours",
    "redone work",
    "reliable machines",
    "disks, addresses, traffic and corrections",
    "failed runs",
)
"""The steps from the on-demand cost of the same work to the amount paid."""

_STEP_OF_USE = {
    Use.STARTING: "start-up",
    Use.LOADING: "start-up",
    Use.IDLE: "waiting",
    Use.UNUSED: "rest of paid hours",
    Use.REDONE: "redone work",
}


@dataclass(frozen=True, slots=True)
class KindCounts:
    """The number of machines of each kind from a moment on."""

    at: int
    reliable: int
    on_demand: int
    spot: int
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class Eviction:
    """A machine that the provider evicted."""

    at: int
    machine: str
    market: Market
    warned: bool


@dataclass(frozen=True, slots=True)
class MinimumBid:
    """The lowest minimum bid among the hosts of a market at a moment, in nano-dollars per hour."""

    at: int
    market: Market
    least: int


@dataclass(frozen=True, slots=True)
class Expected:
    """The plan of a run as far as it was logged; `assumed` if the amount of work was a guess.
    `turns` are the machines of a job that shares quotas, each from a moment on."""

    usd: float | None = None
    usd_low: float | None = None
    usd_high: float | None = None
    hours: float | None = None
    on_demand_usd: float | None = None
    assumed: bool = False
    budget_usd: float | None = None
    turns: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """A run. `wall_*` are times of this computer's clock, all others of the provider's.

    `work` is in clocks, None for jobs that count none; `samples` are the items that a finished
    training went through. `outcome` is None while the run is going on. `is_cut`: only a part of the
    run is in the report.
    """

    run: str
    job: str
    provider: str
    tags: Mapping[str, str]
    wall_began: int
    wall_ended: int | None
    began: int
    until: int
    outcome: str | None
    message: str
    work: int | None
    evictions: tuple[Eviction, ...] = ()
    mixes: tuple[KindCounts, ...] = ()
    stages: tuple[tuple[int, int], ...] = ()
    """The AgileML stage of the job from each of some moments on."""
    minimum_bids: tuple[MinimumBid, ...] = ()
    expected: Expected = field(default_factory=Expected)
    same_work: SameWork = field(default_factory=SameWork)
    samples: int | None = None
    is_cut: bool = False
    received: int | None = None
    sent: int | None = None
    """Bytes that its machines received and sent, as far as machines reported them; None if none
    has."""
    left_plan: tuple[str, ...] = ()
    """The purchases that departed from its plan."""
    rows_lost: int = 0
    """How many of its rows the log has lost."""
    is_least: bool = False
    """Whether there are costs that its rows do not have: rows of the log are lost, or a price, or
    an order is open."""

    @property
    def is_running(self) -> bool:
        """Whether the log has no end of the run; its process may have been killed."""
        return self.outcome is None

    @property
    def on_ray(self) -> bool:
        """Whether the run trained on a Ray cluster: it rented nothing, and the cost of the cluster
        is unknown here.
        """
        return self.provider == RAY

    @property
    def is_replayed(self) -> bool:
        """Whether the run was on a replayed market, where nothing is billed."""
        return is_replayed(self.provider)


class Sums(NamedTuple):
    """Sums over rows in whole nano-dollars, which add up over runs; the interval of the on-demand
    cost does not.
    """

    on_demand: int
    on_demand_low: int
    on_demand_high: int
    free: int
    other_charges: int
    unsettled: int
    doubtful: int
    machine_micros: int
    uses: tuple[int, ...]
    """In the order of `Use`."""
    steps: tuple[int, ...]
    """In the order of `STEPS`."""


@dataclass(frozen=True, slots=True)
class RunPart:
    """A run, or a part of it, with its rows and their sums."""

    run: RunTimeline
    rows: Sequence[LedgerRow]
    sums: Sums

    @classmethod
    def of(cls, run: RunTimeline, rows: Sequence[LedgerRow]) -> "RunPart":
        return cls(run, rows, sums_of(run, rounded(run, rows)))

    @classmethod
    def whole(cls, run: RunTimeline, rows: Sequence[LedgerRow]) -> "RunPart":
        """A run with all of its rows, each with its part of the on-demand cost."""
        return cls.of(run, shared(run, rows))

    def stored(self) -> tuple[str, str]:
        """The account as the log keeps it: the timeline with the sums, and the rows, both in
        JSON."""
        columns = dict[str, list[Any]]()
        by_column = zip(*self.rows, strict=True)
        for name, column in zip(LedgerRow._fields, by_column, strict=False):
            columns[name] = list(column)

        # Most rows have the same few markets, so a row names the position of its market.
        markets = list(dict.fromkeys(row.market for row in self.rows))
        number = {market: i for i, market in enumerate(markets)}
        columns["market"] = [number[row.market] for row in self.rows]

        rows = msgspec.json.encode((markets, columns), enc_hook=str)
        head = (self.run, self.sums, len(self.rows))
        account = msgspec.json.encode(head, enc_hook=str)
        return account.decode(), rows.decode()


def from_stored(costs: Iterable[tuple[str, str]]) -> list[RunPart]:
    """Accounts as the log keeps them. Rows are decoded each time they are read: most reports need
    their sums.
    """
    every = list(costs)
    # All in one go is faster than one by one.
    whole = f"[{','.join(account for account, _ in every)}]"
    kind = list[tuple[RunTimeline, Sums, int]]
    accounts = msgspec.json.decode(whole, type=kind, dec_hook=lambda type_, text: type_(text))

    parts = list[RunPart]()
    for (run, sums, count), (_, lines) in zip(accounts, every, strict=True):
        rows = RowsInTurn(count, partial(_rows, lines))
        parts.append(RunPart(run, rows, sums))
    return parts


@dataclass(frozen=True, slots=True)
class RowsInTurn(Sequence[LedgerRow]):
    """Rows that are made again each time they are read, and never all at once."""

    length: int
    read: Callable[[], Iterator[LedgerRow]]

    def __iter__(self) -> Iterator[LedgerRow]:
        return self.read()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - one row, or several
        return tuple(self)[index]


RoundedRow = tuple[LedgerRow, int, int, int, int]
"""A row, and in whole nano-dollars its amount, its on-demand cost, the doubtful part of its amount,
and the part of it that was paid for waiting while at work."""


def rounded(run: RunTimeline, rows: Iterable[LedgerRow]) -> Iterator[RoundedRow]:
    """The rows of a run in whole nano-dollars, so that groups of them, however they are formed, add
    up to the total to the last digit.

    Each row has what it adds to the rounded sum of the rows up to it. So the total of a run is its
    exact cost, rounded once, and no run changes the digits of another. The parts of a row have
    together what the row has.
    """
    worked = run.same_work.useful.denominator
    useful = run.same_work.useful.numerator
    paid = on_demand = doubtful = waited = paid_before = listed_before = doubtful_before = (
        waited_before
    ) = 0

    for row in rows:
        paid += row.amount
        on_demand += row.on_demand
        doubtful += row.doubtful
        if row.use is Use.WORKING and row.kind is ChargeKind.COMPUTE and not row.reliable:
            waited += row.amount * (worked - useful)
        now = (
            nano_dollars(paid),
            nano_dollars(on_demand),
            nano_dollars(doubtful),
            nano_dollars(waited // worked),
        )
        yield (
            row,
            3600 * (now[0] - paid_before),
            3600 * (now[1] - listed_before),
            3600 * (now[2] - doubtful_before),
            3600 * (now[3] - waited_before),
        )
        paid_before, listed_before, doubtful_before, waited_before = now


def sums_of(run: RunTimeline, rows: Iterable[RoundedRow]) -> Sums:
    """The sums over rows of one run."""
    uses = dict.fromkeys(Use, 0)
    steps = dict.fromkeys(STEPS, 0)
    on_demand = other_charges = unsettled = doubtful = free = machine_micros = 0
    for row, amount, of_row, in_doubt, waited in rows:
        kind = row.kind
        on_demand += of_row
        unsettled += 0 if row.settled else amount
        doubtful += in_doubt
        _take_step(steps, run, row, amount, waited)
        if kind in NOT_MACHINE_TIME:
            other_charges += amount
            continue
        uses[row.use] += amount
        if kind is ChargeKind.COMPUTE:
            machine_micros += row.end - row.begin
        elif kind is ChargeKind.REFUND:
            free -= amount

    steps["spot discount"] += on_demand
    work = run.same_work
    low = on_demand * work.low // work.amount if work.amount else on_demand
    high = on_demand * work.high // work.amount if work.amount else on_demand
    by_use = tuple(uses.values())
    by_step = tuple(steps.values())

    return Sums(
        on_demand,
        low,
        high,
        free,
        other_charges,
        unsettled,
        doubtful,
        machine_micros,
        by_use,
        by_step,
    )


def _take_step(
    steps: dict[str, int], run: RunTimeline, row: LedgerRow, amount: int, waited: int
) -> None:
    """Subtracts the amount of a row from the step that it belongs to."""
    if run.outcome == FAILED:
        steps["failed runs"] -= amount
    elif row.kind in NOT_MACHINE_TIME or row.kind is ChargeKind.CORRECTION:
        steps["disks, addresses, traffic and corrections"] -= amount
    elif row.kind is ChargeKind.REFUND:
        steps["refunds"] -= amount
    elif row.reliable:
        steps["reliable machines"] -= amount
    elif row.use is Use.WORKING:
        steps["waiting"] -= waited
        steps["spot discount"] -= amount - waited
    else:
        steps[_STEP_OF_USE[row.use]] -= amount


def shared(run: RunTimeline, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """The rows, each with its part of the on-demand cost of the run's work, so that groups add up
    to that cost.

    Rows of time at work share all of the cost, in proportion to their list prices; starting,
    waiting and repeating were not needed. Reliable machines, which mostly keep the state, share it
    only where they did all of the work.
    """
    worked = [row.kind is ChargeKind.COMPUTE and row.use is Use.WORKING for row in rows]
    alone = not any(is_work and not row.reliable for is_work, row in zip(worked, rows, strict=True))
    weights = list[int]()
    for is_work, row in zip(worked, rows, strict=True):
        # Machines that are paid for already may have no known list price.
        shares = is_work and (alone or not row.reliable)
        weights.append(max(row.listed, 1) * (row.end - row.begin) if shares else 0)

    whole = run.same_work.amount
    total = sum(weights) or 1
    costed = list[LedgerRow]()
    so_far = 0
    before = 0
    for row, weight in zip(rows, weights, strict=True):
        so_far += weight
        upto = whole * so_far // total
        costed.append(row._replace(on_demand=upto - before))
        before = upto

    return costed


_KINDS, _USES = {kind.value: kind for kind in ChargeKind}, {use.value: use for use in Use}


def _rows(stored: str) -> Iterator[LedgerRow]:
    """The rows that the log keeps in JSON, by columns."""
    markets, columns = msgspec.json.decode(stored, type=tuple[list[Market], dict[str, list[Any]]])
    values_of: dict[str, Any] = {"market": markets, "kind": _KINDS, "use": _USES}
    for name, values in values_of.items():
        columns[name] = [values[key] for key in columns.get(name, ())]

    in_order = [columns.get(name, ()) for name in LedgerRow._fields]
    return map(LedgerRow, *in_order)
