"""A command job's run put together: its work, what it expects of its machines, and what it goes on from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from bidbrain.strategies.base import Rent
from spotctl.agent import checkpoint_sync
from spotctl.errors import BadRequest
from spotctl.files.job.spec import Command, JobSpec
from spotctl.planning.checkpoint_interval import mean_life
from spotctl.planning.market_history import CHECKPOINT
from spotctl.run.command_workload import CommandWork, Surroundings

if TYPE_CHECKING:
    from pricing_data.market import Market
    from spotctl.machines.base import CloudProvider
    from spotctl.planning.values import JobPlan


def command_work(
    spec: JobSpec,
    run: str,
    provider: CloudProvider,
    secrets: Mapping[str, str],
    cache: Path,
    plan: Callable[[], JobPlan],
) -> CommandWork:
    """The work of a run. `plan` is asked for when there is something to expect of machines."""

    def life(market: Market, bid: int | None, machines: int) -> float:
        past = plan().past
        offer = next((one for one in plan().constraints.offers if one.market == market), None)
        if bid is None or offer is None:
            return inf
        return mean_life(past, Rent(offer, machines, bid), int(past.histories[market].prices[-1]))

    return CommandWork(spec, Surroundings(run, provider, secrets, cache, life, CHECKPOINT.write))


def check_places(spec: JobSpec) -> None:
    """Refuses what a job cannot reach from the machines of this computer."""
    program = spec.program
    places = {f"data.{name}": place for name, place in spec.data.items()}
    places |= {f"outputs.{name}": place for name, place in spec.outputs.items()}
    if isinstance(program, Command) and program.checkpoint is not None:
        places["checkpoint.path"] = program.checkpoint.path
    for field, place in places.items():
        if "://" in place:
            raise BadRequest(
                f"{spec.name}: {field} is {place}, which the local market does not reach; write a path or file:///PATH"
            )
        if field.startswith("data.") and not Path(place).exists():
            raise BadRequest(f"{spec.name}: {field} is {place}, and there is no such file or folder; correct it")


def begin_anew(spec: JobSpec, *, fresh: bool) -> None:
    """Lets a job go on from where its last run was stopped, unless that was done, or a fresh start is asked for."""
    program = spec.program
    if isinstance(program, Command) and program.checkpoint is not None:
        try:
            checkpoint_sync.begin_anew(Path(program.checkpoint.path), fresh=fresh)
        except OSError as error:
            raise BadRequest(f"{spec.name}: {error.filename}: cannot be removed: {error.strerror}") from error
