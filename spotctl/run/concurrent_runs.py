"""Several jobs launched together: one allocation over all of them, and a run for each, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from spotctl.errors import BadRequest
from spotctl.files.job.spec import check_names
from spotctl.run import runs
from spotctl.run.runs import Ending, Watching

if TYPE_CHECKING:
    from spotctl.config import Settings
    from spotctl.files.job.spec import JobSpec
    from spotctl.planning.values import JobPlan


@dataclass(slots=True)
class Launched:
    """A job of several: how its run ended, or why there was none."""

    spec: JobSpec
    ending: Ending | None = None
    error: Exception | None = None


def check_together(specs: Sequence[JobSpec]) -> None:
    """Refuses jobs that cannot run on one local market at one time."""
    check_names(specs)
    markets = {(spec.local.speed, spec.local.start, spec.local.seed) for spec in specs}
    if len(markets) > 1:
        names = ", ".join(spec.name for spec in specs)
        raise BadRequest(f"{names}: local.speed, start or seed differ; jobs that run side by side share one market")


def launch(
    plans: Sequence[JobPlan],
    settings: Settings,
    watching: Watching,
    max_cost: int | None = None,
    *,
    fresh: bool = False,
) -> list[Launched]:
    """Runs jobs as they were planned, each to its end, whatever becomes of the others.

    `max_cost` is for all together: each gets the part of it that its plan is of all plans.
    """
    runs.begin_market(plans[0].job.spec, settings)
    total = sum(plan.whole.usd for plan in plans)
    jobs = [Launched(plan.job.spec) for plan in plans]

    def run(job: Launched, plan: JobPlan) -> Callable[[], None]:
        limit = None if max_cost is None else int(max_cost * plan.whole.usd / total)

        def conduct() -> None:
            try:
                job.ending = runs.launch(job.spec, settings, watching, limit, fresh=fresh, plan=plan)
            except Exception as error:  # noqa: BLE001 - told when all have ended: one job's failure ends no other
                job.error = error

        return conduct

    # Daemons: who is interrupted twice waits for nobody, and the leases end what is left.
    threads = [Thread(target=run(job, plan), daemon=True) for job, plan in zip(jobs, plans, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs
