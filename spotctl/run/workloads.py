"""Chooses the workload of a job, and checks before the launch what it needs."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from spotctl.errors import BadRequest
from spotctl.files.job.spec import Command, JobSpec
from spotctl.run.environment import RunEnvironment
from spotctl.run.workload import Workload

if TYPE_CHECKING:
    from pricing_data.market import Market
    from spotctl.planning.values import JobPlan


def workload_of(spec: JobSpec, environment: RunEnvironment, plan: Callable[[], JobPlan]) -> Workload:
    """The work of a run that starts or is resumed. `plan` is called only when the workload needs the plan."""
    if isinstance(spec.program, Command):
        from spotctl.run.command_workload import CommandWorkload

        return CommandWorkload(spec, environment, _mean_life(plan))
    from spotctl.run.training_workload import TrainingWorkload

    return TrainingWorkload(spec, environment)


def _mean_life(plan: Callable[[], JobPlan]) -> Callable[[Market, int | None, int], float]:
    """For a market, a bid and a number of machines: the expected microseconds until the first eviction."""

    def mean_life(market: Market, bid: int | None, machines: int) -> float:
        from bidbrain.strategies.base import Rent
        from spotctl.planning import checkpoint_interval

        history = plan().market_history
        offer = next((offer for offer in plan().decider.offers if offer.market == market), None)
        if bid is None or offer is None:
            return inf
        newest_price = int(history.histories[market].prices[-1])
        return checkpoint_interval.mean_life(history, Rent(offer, machines, bid), newest_price)

    return mean_life


def check_paths(spec: JobSpec) -> None:
    """Refuses paths of a job that machines on this computer cannot reach."""
    program = spec.program
    paths = {f"data.{name}": path for name, path in spec.data.items()}
    paths |= {f"outputs.{name}": path for name, path in spec.outputs.items()}
    if isinstance(program, Command) and program.checkpoint is not None:
        paths["checkpoint.path"] = program.checkpoint.path
    for field, path in paths.items():
        if "://" in path:
            raise BadRequest(
                f"{spec.name}: {field} is {path}, which the local market cannot reach; write a path or file:///PATH"
            )
        if field.startswith("data.") and not Path(path).exists():
            raise BadRequest(f"{spec.name}: {field} is {path}, but no such file or folder exists")


def prepare_checkpoints(spec: JobSpec, *, fresh: bool) -> None:
    """Removes a command's checkpoints if the job is finished or starts `fresh`; otherwise it resumes from them."""
    program = spec.program
    if isinstance(program, Command) and program.checkpoint is not None:
        from spotctl.agent.stored_checkpoints import discard_checkpoints

        try:
            discard_checkpoints(program.checkpoint.path, fresh=fresh)
        except OSError as error:
            raise BadRequest(f"{spec.name}: cannot remove {error.filename}: {error.strerror}") from error
