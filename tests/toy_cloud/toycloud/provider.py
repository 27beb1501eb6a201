"""`ToyProvider`: spot machines of the toy cloud, which are processes on the market of its price
list.

Processes come from `LocalProvider`, in the cloud's own folder. This module makes a cloud of them:
its machines boot without the job's folder and wait until a launcher prepares them, they have images
and badges, and ids of their own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.units import DAY
from spotctl.clouds.errors import Answers, NotPermitted, Unanswered
from spotctl.clouds.link import AgentLink, Invocation, MachineSupplies
from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import CloudProvider, Machine, MachineRequest, Resource, check_settings
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import wall_us
from toycloud.machines import PREFIX, ToyLink, ToyOrder, machine_of, named_as_listed, without_order
from toycloud.price_list import CLOUD, MARKETS, history
from toycloud.settings import ToySettings

if TYPE_CHECKING:
    from pricing_data.market import Market
    from pricing_data.series import PriceSeries
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings

IMAGES = ("wood", "tin")
PAST, FUTURE = 90 * DAY, 365 * DAY


class ToyProvider(CloudProvider):
    """Its clock began with the first use of its folder, and runs `speed` times as fast as ours."""

    name = CLOUD

    def __init__(
        self,
        folder: Path,
        settings: ToySettings,
        regions: Sequence[str] = (),
        begin: int = 0,
        speed: float = 1.0,
    ) -> None:
        self._settings, self._regions = settings, regions
        self._jobs = folder.absolute() / "jobs"
        limits = LocalSettings(unwarned=0.0, most_machines=settings.most_machines)
        self._processes = LocalProvider(folder, self._market, limits)
        if not self._processes.has_begun:
            self._processes.begin(begin or wall_us(), speed)

    @property
    def speed(self) -> float:
        return self._processes.speed

    def now(self) -> int:
        return self._processes.now()

    def offers(self) -> tuple[Market, ...]:
        return tuple(
            market for market in MARKETS if not self._regions or market.region in self._regions
        )

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._processes.prices(market, start, end)

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        image = request.image or self._settings.image
        if image not in IMAGES:
            raise BadRequest(f"image {image!r} is not one of {', '.join(IMAGES)}")
        check_settings(replace(request, image=None, identity=None), self.name)
        order = ToyOrder(image, request.identity or self._settings.badge, request.payload)
        return tuple(map(machine_of, self._processes.create(order.tagged(request))))

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        """See `CloudProvider`. A step that was interrupted is repeated."""
        job, process = self._job_of(machine.id), _process(machine.id)
        with named_as_listed():
            link = ToyLink(self._processes.link(process), job)
        ready = _ready(job)
        if ready.exists():
            return
        job.mkdir(parents=True, exist_ok=True)
        if supplies.folder is not None:
            shutil.copytree(supplies.folder, job, ignore=self._own_folder, dirs_exist_ok=True)
        order = next(
            ToyOrder.of_tags(known.tags)
            for known in self._processes.list({})
            if known.id == process
        )
        if order.payload is not None:
            link.assign(order.payload)
        ready.touch()

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        return tuple(map(machine_of, self._processes.list(tags)))

    def terminate(self, ids: Sequence[str]) -> None:
        self._processes.terminate([_process(machine) for machine in ids])

    def link(self, machine: str) -> AgentLink:
        """See `CloudProvider`. Unanswered: the machine is not prepared."""
        job = self._job_of(machine)
        with named_as_listed():
            link = self._processes.link(_process(machine))
        if not _ready(job).exists():
            raise Unanswered(f"{machine}: it has booted, and is not prepared yet")
        return ToyLink(link, job)

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        with named_as_listed():
            return self._processes.invocation(_process(machine), command)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        return tuple(
            replace(resource, id=PREFIX + resource.id, tags=without_order(resource.tags))
            for resource in self._processes.resources(tags)
        )

    def remove(self, resources: Sequence[Resource]) -> None:
        self._processes.remove(
            [replace(resource, id=_process(resource.id)) for resource in resources]
        )

    def _job_of(self, machine: str) -> Path:
        """The copy of the job's folder on a machine."""
        return self._jobs / _process(machine)

    def _own_folder(self, folder: str, names: Sequence[str]) -> set[str]:
        """The folder of the cloud, which may lie in that of a job."""
        return {name for name in names if Path(folder, name).absolute() == self._jobs.parent}

    def _market(self) -> Replayed:
        today = self.now() // DAY * DAY
        return Replayed.of(history(market, today - PAST, today + FUTURE) for market in MARKETS)


def _ready(job: Path) -> Path:
    """A file that exists once the machine of this job folder is prepared."""
    return job.with_name(f"{job.name}.ready")


def _process(machine: str) -> str:
    return machine.removeprefix(PREFIX)


def provider(
    settings: Settings,
    regions: tuple[str, ...],
    agents: RemoteAgents,  # noqa: ARG001 - for machines that are reached over ssh
    prices: PriceBook,  # noqa: ARG001 - for clouds that keep no history of their prices
    answers: Answers,  # noqa: ARG001 - for clouds that are asked over a network
) -> ToyProvider:
    """See `ProviderPart`. NotPermitted: the cloud has no folder."""
    folder = settings.text("toy_folder")
    if folder is None:
        raise NotPermitted("the toy cloud has no folder; set toy_folder in config.toml")
    return ToyProvider(Path(folder).expanduser(), settings.table(CLOUD, ToySettings), regions)
