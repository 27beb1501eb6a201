"""Chooses the workload of a job, and checks its needs before the launch."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from spotctl.agent.cloud_parts import clouds_by_scheme
from spotctl.agent.data.locations import StoreIdentity
from spotctl.agent.data.stores import StoreRefused
from spotctl.agent.errors import AgentError
from spotctl.clouds.wiring import buckets_of
from spotctl.files.job.data_places import paths_of, written_places
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest
from spotctl.log.statuses import not_ended
from spotctl.log.store import EventLog
from spotctl.run.environment import LAUNCHER, RunEnvironment
from spotctl.run.work.workload import Workload

if TYPE_CHECKING:
    from pricing_data.market import Market
    from spotctl.planning.values import JobPlan


def workload_of(
    spec: JobSpec, environment: RunEnvironment, plan: Callable[[], JobPlan]
) -> Workload:
    """The work of a run that starts or is resumed. `plan` is called only when the workload needs
    the plan.
    """
    if isinstance(spec.program, Command):
        from spotctl.planning.facts import SAVE_TIME
        from spotctl.run.work.command_workload import CommandWorkload

        split_text = partial(_split_text, spec.program, plan)
        return CommandWorkload(
            spec,
            environment,
            partial(_mean_life, plan),
            lambda: plan().demand.save_time or SAVE_TIME,
            split_text,
        )

    from spotctl.run.work.training_workload import TrainingWorkload

    return TrainingWorkload(
        spec, environment, lambda: max(rate.least_stages for rate in plan().fleet.rates.values())
    )


def _mean_life(
    plan: Callable[[], JobPlan], market: Market, bid: int | None, machines: int
) -> float:
    """The expected microseconds until the first of these machines of a market is evicted."""
    from bidbrain.strategies.base import Rent
    from spotctl.planning.cost import mean_life

    history = plan().fleet.market_history
    offer = next((offer for offer in plan().decider.offers if offer.market == market), None)
    if bid is None or offer is None:
        return inf

    newest_price = int(history.histories[market].prices[-1])
    return mean_life(history, Rent(offer, machines, bid), newest_price)


def _split_text(command: Command, plan: Callable[[], JobPlan], market: Market) -> str:
    """How the command's model is split over machines of a market, as JSON; empty for a job without
    a split.
    """
    if command.parallel is None:
        return ""
    split = plan().fleet.rates[market.instance_type].split
    return "" if split is None else json.dumps({**split.to_json(), "rejected": []})


def checkpoint_place(spec: JobSpec) -> str | None:
    """The path or location where a command keeps its checkpoint."""
    path = paths_of(spec).get(("checkpoint", "path"))
    return None if path is None else path.rstrip("/")


def check_checkpoint_is_free(spec: JobSpec, log: EventLog) -> None:
    """Refuses a place for checkpoints where the run of another job, which has not ended, keeps its
    own.
    """
    if (place := checkpoint_place(spec)) is None:
        return
    for run, began in not_ended(log).items():
        theirs = (began.spec.get("checkpoint") or {}).get("path", "").rstrip("/")
        if began.job != spec.name and place == theirs:
            raise BadRequest(
                f"{spec.name}: checkpoint.path is {place}, where run {run} of job {began.job}, "
                "which has not ended,"
                f" keeps its checkpoint; write another path, or stop that run (spotctl stop "
                f"{began.job})"
            )


def prepare_places(spec: JobSpec, *, fresh: bool) -> None:
    """Removes a command's checkpoints if the job is finished or starts `fresh`; otherwise it
    resumes from them. Removes the parts of files that killed machines, or launches, have left where
    the job writes: they would be billed for ever."""
    program = spec.program
    if isinstance(program, Command) and program.checkpoint is not None:
        from spotctl.agent.checkpoints.stored import discard_checkpoints

        try:
            discard_checkpoints(program.checkpoint.path, fresh=fresh, who=LAUNCHER)
        except AgentError as error:
            raise BadRequest(f"{spec.name}: {error}") from error

    for location in sorted(written_places(spec)):
        drop_abandoned_parts(location, LAUNCHER)


def drop_abandoned_parts(location: str, who: StoreIdentity) -> None:
    """Removes parts of objects that were left below a location more than a day ago, as far as `who`
    may.
    """
    scheme, _, rest = location.partition("://")
    name, _, prefix = rest.partition("/")
    before = datetime.now(UTC) - timedelta(days=1)
    cloud = clouds_by_scheme()[scheme]
    with suppress(StoreRefused):
        buckets_of(cloud).drop_abandoned(
            name, f"{prefix.strip('/')}/".lstrip("/"), before, who(cloud)
        )
