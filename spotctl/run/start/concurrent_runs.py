"""Several jobs launched together: one plan for all, and a run for each, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from threading import Thread
from typing import TYPE_CHECKING

from spotctl.files.job.spec import check_names, check_rents
from spotctl.home.errors import BadRequest
from spotctl.log.outcomes import STOPPED
from spotctl.run.start import runs
from spotctl.run.start.local_market import begin_market
from spotctl.run.start.runs import RunEnd, RunObserver
from spotctl.run.start.turns import LaunchTurns, within
from spotctl.run.start.workloads import checkpoint_place

if TYPE_CHECKING:
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings
    from spotctl.planning.values import JobPlan


@dataclass(slots=True)
class Launched:
    """A job that was launched with others, and the end of its run or the error that prevented the run."""

    spec: JobSpec
    ending: RunEnd | None = None
    error: Exception | None = None


def check_together(specs: Sequence[JobSpec]) -> None:
    """Refuses jobs that cannot be planned and run at the same time."""
    check_names(specs)
    check_rents(specs)
    for first, second in combinations(specs, 2):
        if (place := checkpoint_place(first)) is not None and place == checkpoint_place(second):
            raise BadRequest(
                f"{first.name} and {second.name} both keep their checkpoint at {place}, and would resume from"
                " each other's; give each its own checkpoint.path"
            )
    if len({spec.is_local for spec in specs}) > 1:
        names = ", ".join(spec.name for spec in specs)
        raise BadRequest(
            f"{names}: jobs on the local market and jobs on clouds have different clocks; launch them separately"
        )


def launch(
    plans: Sequence[JobPlan],
    settings: Settings,
    observer: RunObserver,
    *,
    fresh: bool = False,
) -> list[Launched]:
    """Runs planned jobs, each to its end, even if others fail. Jobs that wait for quotas begin when others end."""
    if plans[0].job.spec.is_local:
        begin_market(plans[0].job.spec, settings)
    jobs, turns = [Launched(plan.job.spec) for plan in plans], LaunchTurns([plan.allocated for plan in plans])

    def runner(job: Launched, plan: JobPlan) -> Callable[[], None]:
        def run() -> None:
            parts = turns.begin(plan.allocated)
            if parts is None:
                job.error = BadRequest(f"{job.spec.name}: not launched, because the jobs before it were stopped")
                return
            try:
                job.ending = runs.launch(
                    job.spec,
                    settings,
                    observer,
                    fresh=fresh,
                    plan=within(plan, parts),
                    may_grow=lambda: not turns.waiting,
                )
            except Exception as error:  # noqa: BLE001 - reported when all have ended: one job's failure ends no other
                job.error = error
            finally:
                turns.end(plan.allocated, stopped=job.ending is not None and job.ending[1].outcome == STOPPED)

        return run

    # Daemons: a second Ctrl-C ends the process at once, and the leases end what still runs.
    threads = [Thread(target=runner(job, plan), daemon=True) for job, plan in zip(jobs, plans, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs
