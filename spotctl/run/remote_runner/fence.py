"""The fence: at most one runner of a run buys machines, however many believe that they run it.

A small object in the object store holds the *claim* of the current runner. A process that takes
over writes a claim with a higher epoch, on the condition that nothing has changed since it read the
object. A runner renews its claim in the same way before it buys; if that is refused, it has been
superseded and changes nothing any more. A renewal allows purchases for `WINDOW_SECONDS`, so a
process that has just taken over waits until the last window of the runner before it has closed, and
until purchases that were made in it have arrived (`SETTLE_SECONDS`). No clocks of two computers are
compared: each measures only its own waiting.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from threading import Lock

from pricing_data.units import MINUTE
from spotctl.agent.data.locations import SharedObject
from spotctl.agent.data.stores import ObjectChanged, StoreRefused
from spotctl.clouds.errors import NotSent, ProviderError, Unanswered
from spotctl.clouds.provider import (
    CloudProvider,
    EndReason,
    ForwardingProvider,
    Machine,
    MachineRequest,
    MachineState,
    Resource,
)
from spotctl.home.errors import SpotctlError

WINDOW_SECONDS = 10.0
"""How long after the start of a renewal purchases may begin."""

SETTLE_SECONDS = 90.0
"""How long a process that took over waits before reading what its predecessor did. A purchase that
began in the last window has been answered or has failed by then: a cloud's call ends after 60 s at
most."""

BEAT_SECONDS = 15.0
STALE_SECONDS = 75.0
SILENT_SECONDS = 35.0
"""A runner renews its claim this often; one that has not for this long is replaced, and sooner if
it should stop."""

_RENEW_EVERY = MINUTE


class Superseded(SpotctlError):
    """Another runner has taken over the run: this one may change nothing any more."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who runs a run. `holder` is a machine, or empty for the launcher. `key` is a random number of
    the process.

    `beat` counts the renewals. `at` is the time of the last one, in seconds since 1970 on the
    holder's clock, for people to read. A run that has `ended` is taken over by no process;
    `failure` says why a runner gave up.
    """

    epoch: int
    holder: str
    key: str
    beat: int = 0
    ended: bool = False
    failure: str = ""
    at: float = 0.0

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Claim:
        return cls(**json.loads(data))


class Watch:
    """Decides, by this computer's clock, when a runner that no longer renews its claim is given
    up."""

    def __init__(self, stale_after: float = STALE_SECONDS) -> None:
        self._stale_after = stale_after
        self._seen: Claim | None = None
        self._since = 0.0

    def is_stale(self, claim: Claim, now: float) -> bool:
        """Whether the claim has been the same for too long; `now` is a moment of a monotonic
        clock."""
        if claim != self._seen:
            self._seen = claim
            self._since = now
        return not claim.ended and now - self._since > self._stale_after


def is_anothers(cell: SharedObject, machine: str) -> bool:
    """Whether the runner is on another machine than this one. A claim of the launcher does not
    count: the launcher hands it over."""
    stored = cell.read()
    return stored is not None and Claim.from_bytes(stored.data).holder not in ("", machine)


def settle(fence: Fence, sleep: Callable[[float], None] = time.sleep) -> None:
    """Waits until everything that the previous runner ordered has arrived."""
    left = SETTLE_SECONDS
    while left > 0:
        sleep(min(BEAT_SECONDS, left))
        left -= BEAT_SECONDS
        with suppress(StoreRefused):
            fence.renew()


class Fence:
    """The claim of this process. Methods may be called from any thread, and may raise StoreRefused.

    A call that gets no answer may have been carried out; the next call finds that out.
    """

    def __init__(
        self, cell: SharedObject, holder: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Takes over. ObjectChanged: another process did so at the same time."""
        stored = cell.read()
        self._cell = cell
        self._clock = clock
        self._lock = Lock()
        self.epoch = 1 if stored is None else Claim.from_bytes(stored.data).epoch + 1
        self._claim = Claim(self.epoch, holder, secrets.token_hex(8), at=time.time())
        self._superseded = False
        began = clock()
        self._version = cell.write(
            self._claim.to_bytes(), None if stored is None else stored.version
        )
        self._open_until = began + WINDOW_SECONDS

    def check(self) -> None:
        """Raises Superseded if it is known that another process has taken over."""
        if self._superseded:
            raise Superseded(
                "another runner has taken over this run; this one ends and changes nothing"
            )

    def hold(self) -> None:
        """Makes sure that purchases may begin now. Superseded: never again."""
        self.check()
        if self._clock() >= self._open_until:
            self.renew()
        if self._clock() >= self._open_until:
            raise StoreRefused("the object store took too long to renew the claim of this runner")

    def renew(self, *, ended: bool = False, failure: str = "") -> None:
        """Shows that this process is alive. Superseded: another has taken over."""
        with self._lock:
            self.check()
            began = self._clock()
            claim = replace(
                self._claim, beat=self._claim.beat + 1, ended=ended, failure=failure, at=time.time()
            )
            self._version = self._write(claim)
            self._claim = claim
            self._open_until = began + WINDOW_SECONDS

    def _write(self, claim: Claim) -> str:
        try:
            return self._cell.write(claim.to_bytes(), self._version)
        except ObjectChanged:
            stored = self._cell.read()
            earlier = None if stored is None else Claim.from_bytes(stored.data)
            if (
                stored is None
                or earlier is None
                or (earlier.epoch, earlier.key) != (claim.epoch, claim.key)
            ):
                self._superseded = True
                self.check()
                raise
            # An earlier write of this process was carried out although it got no answer.
            return self._cell.write(claim.to_bytes(), stored.version)


class FencedProvider(ForwardingProvider):
    """`own` is the machine of this process, `copy_log` copies the event log, and `stops` says
    whether the run is to end. Without work, the own machine is leased for `lease` at a time.

    Every call that reads or changes the run's machines may raise Superseded.
    """

    def __init__(
        self,
        provider: CloudProvider,
        fence: Fence,
        copy_log: Callable[[], None],
        own: str,
        stops: Callable[[], bool],
        lease: int,
    ) -> None:
        super().__init__(provider)
        self._fence = fence
        self._copy_log = copy_log
        self._own = own
        self._stops = stops
        self._lease = lease
        self._is_returned = False
        self._renewed = 0

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. Unanswered: the object store did not answer, and nothing was bought.
        NotSent: meanwhile the run was asked to stop."""
        self._hold(f"{request.market}: nothing is bought")
        if self._stops():
            raise NotSent("the run ends")
        return self.other.create(request)

    def raise_bid(self, machine: str, bid: int) -> int:
        """See `CloudProvider`. Unanswered: the object store did not answer, and the bid was not
        raised.
        """
        self._hold(f"{machine}: its bid stays")
        return self.other.raise_bid(machine, bid)

    def _hold(self, otherwise: str) -> None:
        """Makes sure that this process may spend money now, and that others would know of it."""
        try:
            self._copy_log()
            self._fence.hold()
        except OSError as error:
            raise Unanswered(f"{otherwise} while the object store fails: {error}") from None

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        self._fence.check()
        if self._is_returned and not self._stops():
            # The run no longer renews the lease of the own machine.
            now = self.now()
            if now - self._renewed >= _RENEW_EVERY:
                with suppress(ProviderError):
                    self.other.link(self._own).renew(now + self._lease)
                    self._renewed = now

        return tuple(map(self._seen, self.other.list(tags)))

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. The own machine goes on until `return_own`."""
        self._fence.check()
        self._is_returned |= self._own in ids
        if others := [machine for machine in ids if machine != self._own]:
            self.other.terminate(others)

    def return_own(self) -> None:
        """Ends the machine of this process, and with it this process."""
        self.other.terminate([self._own])

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`. Resources that the own machine uses outlive it, so a launcher
        removes them.
        """
        return () if self._stops() else self.other.resources(tags)

    def remove(self, resources: Sequence[Resource]) -> None:
        self._fence.check()
        self.other.remove(resources)

    def _seen(self, machine: Machine) -> Machine:
        if machine.id != self._own or not self._is_returned or not self._stops():
            return machine
        # What the run still does on it, such as storing the model, is paid for.
        return replace(
            machine, state=MachineState.GONE, ended=self.now(), end_reason=EndReason.RETURNED
        )
