"""The choice of a job's workload: a command or a training."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.run.environment import RunEnvironment
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
