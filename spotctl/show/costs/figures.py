"""Sums over ledger rows, and what follows from them. Amounts are rounded only when shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pricing_data.units import NANO_SECONDS_PER_DOLLAR, NANOS_PER_DOLLAR
from spotctl.log.ledger.account import STEPS, RunTimeline, Sums
from spotctl.log.ledger.rows import Use
from spotctl.log.outcomes import DONE

WAITING = frozenset({Use.STARTING, Use.LOADING, Use.IDLE})
"""Paid time without work: machines that start, load, or idle before others are ready or after the end."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over rows, in nano-dollar-seconds; `work` is None where it is unknown or of several kinds."""

    total: int
    on_demand: int
    free: int
    uses: Mapping[Use, int]
    other_charges: int
    """Part of the total: disks, addresses and traffic."""
    unsettled: int
    """Part of the total: amounts of machines that are still running, which may change."""
    machine_micros: int
    evictions: int
    runs: int
    running: int
    work: int | None
    samples: int | None = None
    sent: int | None = None
    received: int | None = None
    """Bytes that machines counted at their interfaces; None if none has, or for parts of runs."""
    traffic_runs: int = 0
    """How many of the runs have counted their bytes."""
    successes: int = 0
    replayed_runs: int = 0
    """How many of the runs were on a replayed market: all or none, because no sum has both kinds of money."""
    budget: int | None = None
    """The budgets of the runs, None unless all are whole and have one."""
    on_demand_low: int = 0
    on_demand_high: int = 0
    loss: int = 0
    """Part of the total: what failed runs cost."""
    steps: tuple[tuple[str, int], ...] = ()
    """From the on-demand cost to the total: the amounts saved, negative where money was lost; their sum is `saved`."""
    doubtful: int = 0
    """Part of the total that only counts because the end of machines is not known."""
    is_least: bool = False
    """Whether there are costs that the rows do not have."""
    rows_lost: int = 0
    """How many rows of the log the runs have lost."""
    only_keeps_state: bool = False
    """Whether these are reliable machines without the spot machines that they serve: the work is in other groups."""

    @property
    def low(self) -> int:
        """The least that the total can be."""
        return self.total - self.doubtful

    @property
    def high(self) -> int | None:
        """The most that the total can be; None if that is unknown."""
        return None if self.is_least else self.total

    @property
    def lost_work(self) -> int:
        """Paid for work that was lost in evictions and redone."""
        return self.uses.get(Use.REDONE, 0)

    @property
    def waiting(self) -> int:
        """Paid for time in which machines did not work."""
        return sum(self.uses.get(use, 0) for use in WAITING)

    @property
    def saved(self) -> int:
        """The on-demand cost of the same work minus the total; negative if more was paid."""
        return self.on_demand - self.total

    @property
    def saved_pct(self) -> float | None:
        """`saved` in percent of the on-demand cost; None if nothing was used, or what was used serves other groups, or
        costs are missing."""
        compares = self.on_demand and not self.only_keeps_state and not self.is_least
        return round(100 * self.saved / self.on_demand, 4) if compares else None

    @property
    def usd_per_work(self) -> float | None:
        """Dollars per unit of work; None if the work is unknown or zero, or costs are missing."""
        return usd(self.total) / self.work if self.work and not self.is_least else None

    @property
    def usd_per_million_samples(self) -> float | None:
        """Dollars per million items that a training has gone through; None if their number is unknown or zero."""
        return usd(self.total) / self.samples * 1e6 if self.samples and not self.is_least else None

    @property
    def usd_per_success(self) -> float | None:
        """Dollars per run that succeeded, with the cost of those that did not; None if none did."""
        return usd(self.total) / self.successes if self.successes and not self.is_least else None


def usd(amount: int) -> float:
    """Nano-dollar-seconds as dollars, rounded to the nano-dollar so that groups add up to the total as printed."""
    return round(Fraction(amount, 3600)) / NANOS_PER_DOLLAR


def total_of(sums: Iterable[Sums]) -> Sums:
    addends = (_NONE, *sums)
    return Sums(
        on_demand=sum(addend.on_demand for addend in addends),
        on_demand_low=sum(addend.on_demand_low for addend in addends),
        on_demand_high=sum(addend.on_demand_high for addend in addends),
        free=sum(addend.free for addend in addends),
        other_charges=sum(addend.other_charges for addend in addends),
        unsettled=sum(addend.unsettled for addend in addends),
        doubtful=sum(addend.doubtful for addend in addends),
        machine_micros=sum(addend.machine_micros for addend in addends),
        uses=tuple(map(sum, zip(*(addend.uses for addend in addends), strict=True))),
        steps=tuple(map(sum, zip(*(addend.steps for addend in addends), strict=True))),
    )


_NONE = Sums(0, 0, 0, 0, 0, 0, 0, 0, (0,) * len(Use), (0,) * len(STEPS))


def figures_of(sums: Sums, runs: Sequence[RunTimeline], evictions: int, *, whole: bool) -> Figures:
    """The figures of rows with these sums; without `whole`, they are parts of runs, whose work is not known."""
    uses, steps = dict(zip(Use, sums.uses, strict=True)), dict(zip(STEPS, sums.steps, strict=True))
    return Figures(
        total=sum(sums.uses) + sums.other_charges,
        on_demand=sums.on_demand,
        free=sums.free,
        uses=uses,
        other_charges=sums.other_charges,
        unsettled=sums.unsettled,
        doubtful=sums.doubtful,
        is_least=any(run.is_least for run in runs),
        rows_lost=sum(run.rows_lost for run in runs),
        on_demand_low=sums.on_demand_low,
        on_demand_high=sums.on_demand_high,
        loss=-steps["failed runs"],
        steps=tuple(steps.items()),
        machine_micros=sums.machine_micros,
        evictions=evictions,
        runs=len(runs),
        running=sum(run.is_running for run in runs),
        successes=sum(run.outcome == DONE for run in runs),
        replayed_runs=sum(run.is_replayed for run in runs),
        **(_worked(runs) if whole else {"work": None}),
    )


def _worked(runs: Sequence[RunTimeline]) -> dict[str, Any]:
    """The work, samples, traffic and budget of whole runs."""
    budgets = [run.expected.budget_usd for run in runs]
    known = [round(budget * NANO_SECONDS_PER_DOLLAR) for budget in budgets if budget is not None]
    whole = len(known) == len(runs) > 0 and not any(run.is_cut for run in runs)
    work = _work(runs)
    counted = [(run.sent, run.received or 0) for run in runs if run.sent is not None]
    sent, received = map(sum, zip(*counted, strict=True)) if counted else (None, None)
    return {
        "work": work,
        "samples": _samples(runs, work),
        "budget": sum(known) if whole else None,
        "sent": sent,
        "received": received,
        "traffic_runs": len(counted),
    }


def _work(runs: Sequence[RunTimeline]) -> int | None:
    """The work of runs of one job; clocks of different jobs are different amounts of work. None if some was done on
    machines whose cost is not known.
    """
    counts = [run.work for run in runs]
    if len({run.job for run in runs}) != 1 or None in counts or any(run.on_ray for run in runs):
        return None
    return sum(count for count in counts if count is not None)


def _samples(runs: Sequence[RunTimeline], work: int | None) -> int | None:
    """The samples of runs of one job. A run that was not finished does not log them; its clocks have as many each."""
    logged = [(run.samples, run.work) for run in runs if run.samples is not None and run.work]
    clocks = sum(clocks for _, clocks in logged if clocks is not None)
    if work is None or not clocks:
        return None
    return work * sum(samples for samples, _ in logged if samples is not None) // clocks
