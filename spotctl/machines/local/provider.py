"""`LocalProvider`: rents processes of this computer on a replayed market, and survives a SIGKILL at any point.

A grant is one rename (`folders`), a process is known by a lock (`processes`), and how a machine ends is laid down when
it is granted and carried out by the machine itself (`spotctl.agent.machine`), so that nobody has to be there for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.market import Market
from pricing_data.units import SECOND
from spotctl.agent.clock import MarketClock
from spotctl.agent.processes import kill
from spotctl.errors import BadSettings
from spotctl.machines.base import (
    EndReason,
    Invocation,
    Machine,
    MachineRequest,
    MachineState,
    NotFound,
    Payload,
    ProviderError,
    QuotaReached,
    Resource,
    TokenTaken,
    Unanswered,
)
from spotctl.machines.local.folders import Allocation, Folders, Place
from spotctl.machines.local.processes import bury, fail, is_alive, start, strays, surroundings
from spotctl.machines.replayed import Held, Replayed, Warnings
from spotctl.machines.tokens import same_request

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries

_ADDRESS = "127.0.0.1"
# Longer than anybody repeats a call, so that no token is served again because it was forgotten.
_REMEMBERED_SECONDS = 7 * 24 * 3600


class MarketBusy(ProviderError):
    """The market cannot begin anew while machines live on it."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """What a local market is like.

    `warning_seconds` are seconds of the computer's clock, because that is what a program needs to save itself. A share
    of the evictions comes `unwarned`; `seed` says which. `most_machines` protects the computer.
    """

    warning_seconds: float = 2.0
    unwarned: float = 0.25
    seed: int = 0
    most_machines: int = 64


class LocalProvider:
    """The local market under a folder. `market` is asked for when prices are first needed: reading them takes time."""

    name = "local"

    def __init__(self, root: Path, market: Callable[[], Replayed], settings: LocalSettings = LocalSettings()) -> None:
        self._folders = Folders(root.absolute())
        self._clock = MarketClock(self._folders.root / "clock.json")
        self._read_market, self._settings = market, settings

    def begin(self, moment: int, speed: float) -> None:
        """Has the market begin at a moment of its history and go so many times faster than time.

        MarketBusy: machines live, whose times would be others.
        """
        if not 0 < speed < float("inf"):
            raise BadSettings(f"a market speed of {speed:g} is not above 0 and finite")
        with self._changing():
            alive = self._alive()
            if alive:
                raise MarketBusy(f"{len(alive)} machines live on the local market; give them back first (spotctl down)")
            self._folders.begin()
            self._clock.start(moment, speed)

    @property
    def has_begun(self) -> bool:
        """Whether the market has a time."""
        return self._clock.started

    @property
    def speed(self) -> float:
        """As it was begun."""
        self._require_begun()
        return self._clock.speed

    def now(self) -> int:
        """The market's time, for every process the same."""
        self._require_begun()
        return self._clock.now()

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """See `CloudProvider`; from the history that takes the machines."""
        return self._market.prices(market, start, end, self.now())

    def create(self, order: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. Machines are up when it returns, or have failed."""
        self._require_begun()
        with self._changing():
            self._folders.forget(time.time() - _REMEMBERED_SECONDS)
            allocation = self._folders.of_token(order.token)
            if allocation is None:
                allocation = self._grant(order)
        known = allocation.order
        if not same_request(known, order):
            raise TokenTaken(
                f"token {order.token} has rented {known.count} of {known.market}; a new order needs a new token"
            )
        self._start(allocation, order.secrets)
        return tuple(self._seen(place) for place in allocation.places)

    def assign(self, ids: Sequence[str], payload: Payload) -> None:
        """See `CloudProvider`."""
        self._for_living(ids, lambda place: place.assign(payload))

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """See `CloudProvider`."""
        found = (one for one in self._folders.all() if tags.items() <= one.order.tags.items())
        return tuple(self._seen(place) for allocation in found for place in allocation.places)

    def renew(self, ids: Sequence[str], lease_until: int) -> None:
        """See `CloudProvider`."""
        until = max(lease_until, self.now())
        self._for_living(ids, lambda place: place.lease(until))

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Billing ends at once, the processes within a moment."""
        now = self.now()
        with self._changing():
            for place in self._folders.places(ids).values():
                if place is not None and place.ended is None and place.returned_at is None:
                    place.leave(now)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`. A process that belongs to no machine any more is shown whatever the tags: it is ours."""
        living = (one for one in self.list(tags) if one.state is not MachineState.GONE)
        machines = [Resource("machine", one.id, one.tags, str(one.market)) for one in living]
        left = [Resource("process", str(pid), {}, str(mark)) for pid, mark in strays(self._folders.machines)]
        return (*machines, *left)

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`."""
        self.terminate([one.id for one in resources if one.kind == "machine"])
        wanted = {one.id for one in resources if one.kind == "process"}
        for pid, _ in strays(self._folders.machines):
            if str(pid) in wanted:
                kill(pid)

    def output(self, machine: str, after: int = 0) -> bytes:
        """See `KeepsOutput`."""
        place = self._folders.places([machine])[machine]
        if place is None:
            raise NotFound(f"{machine}: no such machine", (machine,))
        try:
            with (place.folder / "output").open("rb") as file:
                file.seek(after)
                return file.read()
        except FileNotFoundError:
            return b""

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        """See `TakesCommands`. The command bears the machine's mark, by which the machine ends it with itself."""
        place = self._folders.places([machine])[machine]
        if place is None or place.end_by(self.now()) is not None:
            raise NotFound(f"{machine}: gone; rent others", (machine,))
        return Invocation(tuple(command), *surroundings(place))

    @cached_property
    def _market(self) -> Replayed:
        return self._read_market()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One caller at a time; what the disk refuses is an error of the provider, and nothing was granted."""
        try:
            with self._folders.locked():
                if self._clock.started:
                    self._clock.note()
                yield
        except OSError as error:
            where = error.filename or self._folders.root
            raise ProviderError(
                f"{where}: cannot be written: {error.strerror or error}; make room, or set another SPOTCTL_HOME"
            ) from error

    def _grant(self, order: MachineRequest) -> Allocation:
        alive = self._alive()
        room = self._settings.most_machines - len(alive)
        if room < 1:
            raise QuotaReached(
                f"{len(alive)} local machines live, and {self._settings.most_machines} are allowed; give some back"
            )
        now = self._clock.now()
        held = [
            Held(place.fate.started, place.fate.taken_at)
            for place in alive
            if place.allocation.order.market == order.market and place.allocation.order.bid is not None
        ]
        number = self._folders.next_number()
        wanted = replace(order, count=min(order.count, room))
        fates = self._market.fates(wanted, held, now, number - self._folders.first_number, self._warnings)
        return self._folders.create(order, fates, number, self._market.closes_at(order.market))

    @property
    def _warnings(self) -> Warnings:
        ahead = round(self._settings.warning_seconds * self._clock.speed * SECOND)
        return Warnings(ahead, self._settings.unwarned, self._settings.seed)

    def _start(self, allocation: Allocation, secrets: Mapping[str, str]) -> None:
        try:
            start(allocation.places, self._clock.path, secrets)
            for place in allocation.places:
                if not place.is_up:
                    fail(place, self._clock.now())
        except OSError as error:
            raise Unanswered(
                f"machines of token {allocation.order.token} could not all be started: {error.strerror or error};"
                " repeat the order with its token, or let its lease end"
            ) from error

    def _seen(self, place: Place) -> Machine:
        end = place.ended
        if end is None and not is_alive(place):
            bury(place, self.now())
            end = place.ended
        order, fate = place.allocation.order, place.fate
        return Machine(
            id=place.id,
            market=order.market,
            bid=order.bid,
            state=_state(place) if end is None else MachineState.GONE,
            started=fate.started,
            lease_until=place.lease_until,
            tags=order.tags,
            address=_ADDRESS,
            warned_until=place.warned_until,
            ended=None if end is None else end.at,
            end_reason=None if end is None else EndReason(end.reason),
            work=place.work,
            exit_code=place.exit_code(place.work),
        )

    def _for_living(self, ids: Sequence[str], change: Callable[[Place], None]) -> None:
        """Changes machines that are not gone, nor past their end; then says which were."""
        gone = []
        with self._changing():
            for one, place in self._folders.places(ids).items():
                if place is None or place.end_by(self._clock.now()) is not None:
                    gone.append(one)
                else:
                    change(place)
        if gone:
            raise NotFound(f"{', '.join(gone)}: gone; rent others", gone)

    def _alive(self) -> tuple[Place, ...]:
        places = (place for allocation in self._folders.all() for place in allocation.places)
        return tuple(place for place in places if self._seen(place).state is not MachineState.GONE)

    def _require_begun(self) -> None:
        if not self._clock.started:
            raise NotFound(f"{self._folders.root}: the local market has not begun; spotctl launch begins it")


def _state(place: Place) -> MachineState:
    if place.returned_at is not None or place.warned_until is not None:
        return MachineState.LEAVING
    return MachineState.RUNNING if place.is_up else MachineState.STARTING
