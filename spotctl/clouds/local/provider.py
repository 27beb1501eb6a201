"""`LocalProvider`: machines as processes of this computer, on a replayed market; SIGKILL does no
harm at any point.

A grant is one rename (`folders`), and a running machine is known by a lock (`processes`). A
machine's end is planned when the machine is granted and carried out by its own hypervisor
(`hypervisor`), so no launcher has to be there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from agileml.runtime.ground import is_locked
from bidbrain.replay.market import Warnings
from pricing_data.market import Market
from pricing_data.units import SECOND
from spotctl.agent.container.processes import Surroundings, kill
from spotctl.agent.link.output import read_from, times_file
from spotctl.clouds.errors import NotFound, ProviderError, QuotaReached, TokenTaken, Unanswered
from spotctl.clouds.link import AgentLink, Invocation, link_key, link_secret
from spotctl.clouds.local.clock import Delays, MarketClock
from spotctl.clouds.local.folders import AllocationFolders, LocalAllocation, MachineFolder
from spotctl.clouds.local.machine_file import HOST
from spotctl.clouds.local.processes import (
    clean_up,
    fail,
    signal_return,
    start,
    stray_processes,
)
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import (
    CloudProvider,
    EndReason,
    Machine,
    MachineRequest,
    MachineState,
    Resource,
    check_settings,
    same_request,
)
from spotctl.home.errors import BadSettings

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries

# Longer than any caller repeats a request, so that no forgotten token is served again.
_KEPT_SECONDS = 7 * 24 * 3600
_LOOK_SECONDS = 0.2


class MarketBusy(ProviderError):
    """The market cannot be restarted while machines run on it."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Settings of a local market.

    `warning_seconds` are seconds of this computer, in which a program can save its state. A share
    of the evictions comes `unwarned`; `seed` decides which. `most_machines` protects this computer.
    """

    warning_seconds: float = 2.0
    unwarned: float = 0.25
    seed: int = 0
    most_machines: int = 64


class LocalProvider(CloudProvider):
    """The local market under a folder. `market` is called when prices are first needed, because
    reading takes time.
    """

    name = "local"

    def __init__(
        self, root: Path, market: Callable[[], Replayed], settings: LocalSettings = LocalSettings()
    ) -> None:
        self._folders = AllocationFolders(root.absolute())
        self._clock = MarketClock(self._folders.root / "clock.json")
        # The processes that this one starts, such as a training's controller, work for the job.
        self._delays = Delays(self._clock, depth=1)
        self._read_market, self._settings = market, settings
        self._links: dict[str, AgentLink] = {}
        self._closed = Event()
        self._starts: str | None = None

    def begin(self, moment: int, speed: float) -> None:
        """Starts the market at a moment of its history; its clock runs `speed` times faster than
        this computer's.

        MarketBusy: machines run, whose times would change.
        """
        if not 0 < speed < float("inf"):
            raise BadSettings(f"a market speed of {speed:g} is not above 0 and finite")

        with self._changing():
            alive = self._alive()
            if alive:
                cure = "end them first (spotctl stop)"
                raise MarketBusy(f"{len(alive)} machines run on the local market; {cure}")
            self._folders.begin()
            self._clock.start(moment, speed)

        self._delays.take_part()

    def attend(self, *, starting: str = "") -> None:
        """See `CloudProvider`. The market's clock stands while this process and its machines are
        delayed or start.
        """
        if starting == self._starts:
            return

        begun, self._starts = self._starts is not None, starting
        self._delays.take_part(starting=bool(starting))
        if begun:
            return

        clock = MarketClock(self._clock.path)

        def look() -> None:
            while not self._closed.wait(_LOOK_SECONDS) and clock.path.exists():
                Delays(clock, depth=1).look()

        Thread(target=look, name="delays of machines", daemon=True).start()

    @property
    def stood_seconds(self) -> float:
        """See `CloudProvider`."""
        return self._clock.standing.by(time.monotonic_ns()) / 1e9

    def close(self) -> None:
        self._closed.set()

    @property
    def has_begun(self) -> bool:
        return self._clock.started

    @property
    def speed(self) -> float:
        """Seconds of market time per second, as the market was started."""
        self._require_begun()
        return self._clock.speed

    def now(self) -> int:
        """The market's time, the same for every process."""
        self._require_begun()
        return self._clock.now()

    def offers(self) -> tuple[Market, ...]:
        """See `CloudProvider`; the markets whose history has a price now."""
        return self._market.open_at(self.now())

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """See `CloudProvider`; from the history that decides about evictions."""
        return self._market.prices(market, start, end, self.now())

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. Returns once all machines are up or have failed."""
        self._require_begun()
        check_settings(request, self.name)
        with self._changing():
            self._folders.forget(time.time() - _KEPT_SECONDS)
            allocation = self._folders.of_token(request.token)
            if allocation is None:
                allocation = self._grant(request)

        known = allocation.request
        if not same_request(known, request):
            cure = "a different request needs a token of its own"
            problem = (
                f"token {request.token} was used for {known.count} machines of {known.market}; "
                f"{cure}"
            )
            raise TokenTaken(problem)

        try:
            # Machines start until the file is gone, whatever else this process starts.
            starting = self._delays.take_part(starting=True, as_="-machines")
            try:
                start(allocation.machines, self._clock.path, request.secrets, self._key)
            finally:
                starting.unlink(missing_ok=True)
            for machine in allocation.machines:
                if not machine.is_up:
                    fail(machine, self._clock.now())
        except OSError as error:
            cure = "repeat the request with its token, or let its lease end"
            problem = (
                f"machines of token {known.token} could not all be started: "
                f"{error.strerror or error}; {cure}"
            )
            raise Unanswered(problem) from error

        return tuple(self._seen(machine) for machine in allocation.machines)

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        listed = []
        for allocation in self._folders.all():
            if tags.items() <= allocation.request.tags.items():
                listed += [self._seen(machine) for machine in allocation.machines]
        return tuple(listed)

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Billing ends at once, the processes within a moment."""
        now = self.now()
        try:
            with self._changing():
                for machine in self._running(ids):
                    machine.terminate(now)
        except ProviderError:
            # A disk that takes no write must not keep machines running.
            without = [machine for machine in self._running(ids) if not signal_return(machine)]
            if without:
                raise

    def _running(self, ids: Sequence[str]) -> tuple[MachineFolder, ...]:
        """The machines with these ids that have not ended and were not terminated."""
        known = (machine for machine in self._folders.by_id(ids).values() if machine is not None)
        return tuple(
            machine for machine in known if machine.ended is None and machine.terminated_at is None
        )

    def link(self, machine: str) -> AgentLink:
        """See `CloudProvider`. Agents listen on this computer's loopback interface."""
        if machine in self._links:
            return self._links[machine]

        folder = self._folders.by_id([machine])[machine]
        if folder is None or folder.end_by(self.now()) is not None:
            raise NotFound(f"{machine}: gone (evicted or returned)", (machine,))
        if (port := folder.number("port")) is None:
            raise Unanswered(f"{machine}: its agent has not started yet; try again")

        def gone() -> bool:
            return folder.end_by(self.now()) is not None

        link = AgentLink(
            lambda: (HOST, port), machine, link_secret(self._key, machine), self._clock, gone
        )
        self._links[machine] = link
        return self._links[machine]

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`; machines, and processes that belong to no running machine any
        more."""
        held = []
        for machine in self.list(tags):
            if machine.state is not MachineState.GONE:
                market = str(machine.market)
                held.append(Resource("machine", machine.id, machine.tags, market))
        strays = stray_processes(self._folders.machines)
        held += [stray for stray in strays if tags.items() <= stray.tags.items()]
        return tuple(held)

    def remove(self, resources: Sequence[Resource]) -> None:
        self.terminate([resource.id for resource in resources if resource.kind == "machine"])
        processes = {resource.id for resource in resources if resource.kind == "process"}
        for stray in stray_processes(self._folders.machines):
            if stray.id in processes:
                kill(int(stray.id))

    def output(self, machine: str, after: int = 0) -> bytes:
        return read_from(self._output_file(machine), after)

    def output_times(self, machine: str, after: int = 0) -> bytes:
        return read_from(times_file(self._output_file(machine)), after)

    def _output_file(self, machine: str) -> Path:
        folder = self._folders.by_id([machine])[machine]
        if folder is None:
            raise NotFound(f"{machine}: no such machine", (machine,))
        return folder.folder / "output"

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        """See `CloudProvider`. The command carries the machine's mark, so the hypervisor ends it
        with the machine.
        """
        folder = self._folders.by_id([machine])[machine]
        if folder is None or folder.end_by(self.now()) is not None:
            raise NotFound(f"{machine}: gone (evicted or returned)", (machine,))

        agent = folder.number("agent")
        if agent is None:
            raise Unanswered(f"{machine}: its agent has not started yet; try again")

        payload = folder.allocation.request.payload
        surroundings = Surroundings(folder.folder, agent, "" if payload is None else payload.folder)
        return Invocation(
            tuple(surroundings.wrap(command)), surroundings.environment, surroundings.folder
        )

    @cached_property
    def _market(self) -> Replayed:
        return self._read_market()

    @cached_property
    def _key(self) -> bytes:
        return link_key(self._folders.root)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Lets one process at a time change something. ProviderError: the disk refused a write;
        nothing was granted.
        """
        try:
            with self._folders.locked():
                if self._clock.started:
                    self._clock.note()
                yield
        except OSError as error:
            where = error.filename or self._folders.root
            cure = "make room, or set another SPOTCTL_HOME"
            problem = f"{where}: cannot be written: {error.strerror or error}; {cure}"
            raise ProviderError(problem) from error

    def _grant(self, request: MachineRequest) -> LocalAllocation:
        alive = self._alive()
        room = self._settings.most_machines - len(alive)
        if room < 1:
            cure = "end some first"
            problem = (
                f"{len(alive)} local machines are running, of at most "
                f"{self._settings.most_machines}; {cure}"
            )
            raise QuotaReached(problem)

        now = self._clock.now()
        held = [
            machine.plan.taken_at
            for machine in alive
            if machine.allocation.request.market == request.market
            and machine.allocation.request.bid is not None
        ]

        first, number = self._folders.numbers()
        affordable = replace(request, count=min(request.count, room))
        ahead = round(self._settings.warning_seconds * self._clock.speed * SECOND)
        warnings = Warnings(ahead, self._settings.unwarned, self._settings.seed)
        plans = self._market.planned_ends(affordable, held, now, number - first, warnings)

        return self._folders.create(request, plans, number, self._market.closes_at(request.market))

    def _seen(self, machine: MachineFolder) -> Machine:
        end = machine.ended
        if end is None and not is_locked(machine.folder / "lock"):
            end = clean_up(machine, self.now())
        if end is not None and (link := self._links.pop(machine.id, None)) is not None:
            link.close()

        if end is not None:
            state = MachineState.GONE
        elif machine.terminated_at is not None:
            state = MachineState.LEAVING
        else:
            state = MachineState.RUNNING if machine.is_up else MachineState.STARTING

        request = machine.allocation.request
        return Machine(
            id=machine.id,
            market=request.market,
            bid=request.bid,
            state=state,
            started=machine.plan.started,
            tags=request.tags,
            address=HOST,
            ended=None if end is None else end.at,
            end_reason=None if end is None else EndReason(end.reason),
        )

    def _alive(self) -> tuple[MachineFolder, ...]:
        machines = (
            machine for allocation in self._folders.all() for machine in allocation.machines
        )
        return tuple(
            machine for machine in machines if self._seen(machine).state is not MachineState.GONE
        )

    def _require_begun(self) -> None:
        if not self._clock.started:
            cure = "spotctl launch starts it"
            raise NotFound(f"{self._folders.root}: the local market was not started; {cure}")
