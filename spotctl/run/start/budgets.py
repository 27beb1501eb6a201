"""The budget of a run that goes on: its user sets it, and the runner keeps to it from its next turn
on.

The runner appends an event that commits money (`LogEvent.commits`), or an end at the budget, only
if no other budget was set since it decided (`Journal.write_within`), and a budget is set only if
nothing was committed since it was found to be enough for what is committed. So what is committed
never exceeds the budget that the log has, in whichever order the two write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pricing_data.errors import PricingDataError
from pricing_data.units import usd, usd_text
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.link import LeaseTimes
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log import budget
from spotctl.log.events import BudgetSet
from spotctl.log.folding import fold
from spotctl.log.ledger.project import recorded
from spotctl.log.ledger_reader import present_of
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog

if TYPE_CHECKING:
    from spotctl.home.config import Settings
    from spotctl.log.state import RunState

_TRIES = 50
"""A run that orders or renews while its cost is counted is counted again, at most this often."""


def set_budget(job: str, settings: Settings, limit: int) -> tuple[str, int | None]:
    """Sets what the active run of a job may cost in all, in nano-dollar-seconds. Returns the run,
    and its budget before, None for no limit.

    BadRequest: the job has no such run, or more than this is spent or committed already.
    """
    with EventLog(Paths(settings.home).log) as log:

        def may_change(state: RunState) -> int | None:
            assert state.began is not None
            spec = restored(state.began.spec, settings.home)
            if spec.on_ray:
                raise BadRequest(
                    f"job {job} runs on a Ray cluster: spotctl rents nothing for it, so a budget "
                    "has no use"
                )

            earlier = state.limit(None if spec.budget is None else spec.budget * 3600)
            # A higher budget covers whatever the earlier one did.
            if earlier is not None and limit >= earlier:
                return earlier

            now, _ = present_of(state, settings)
            tariff = recorded(state, budget.tariff_of(provider_of(settings, spec), state.started))
            try:
                committed = budget.committed(state, now, tariff, LeaseTimes.of(spec).teardown)
            except (ProviderError, PricingDataError) as error:
                raise BadRequest(
                    f"run {state.run}: its cost so far is not known, so its budget stays: {error}"
                ) from error

            if committed > limit:
                raise BadRequest(
                    f"run {state.run}: {usd_text(usd(committed))} is spent, or committed until its "
                    f"leases end, so its budget cannot be {usd_text(usd(limit))}; 'spotctl stop "
                    f"{spec.name}' ends the run"
                )
            return earlier

        return change_budget(log, partial(_active_run, log, job), may_change, limit)


def change_budget(
    log: EventLog,
    read: Callable[[], RunState],
    may_change: Callable[[RunState], int | None],
    limit: int,
) -> tuple[str, int | None]:
    """Sets the budget of a run if, in the state that `read` returns, it `may_change`, which returns
    the earlier budget or raises BadRequest. Returns the run, and the earlier budget."""
    for _ in range(_TRIES):
        state = read()
        earlier = may_change(state)
        if log.append_if(state.run, state.at, BudgetSet(limit), partial(_is_unchanged, log, state)):
            return state.run, earlier
    raise BadRequest("the run orders and renews all the time, so its budget was not set: try again")


def _active_run(log: EventLog, job: str) -> RunState:
    state = latest_run(log, job)
    if state is None:
        raise BadRequest(
            f"job {job} has no run whose budget can be set ('spotctl status' lists all jobs)"
        )
    if state.ended is not None or state.stopping is not None:
        word = "is ending" if state.ended is None else "has ended"
        raise BadRequest(
            f"run {state.run} {word}, so its budget stays: raise `budget:` in the job file, and "
            "launch it again"
        )

    return state


def _is_unchanged(log: EventLog, state: RunState) -> bool:
    """Whether nothing was committed since a state, no other budget was set, and the run has not
    begun to end.
    """
    rows = log.of_run(state.run, state.last_row)
    now = fold(rows, state)
    is_same = (now.budget_set, now.stopping, now.ended) == (
        state.budget_set,
        state.stopping,
        state.ended,
    )
    return is_same and not any(row.event.commits for row in rows)
