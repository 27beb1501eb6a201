"""What an EC2 account has rented, with exact times, and how it ends: the part of the server that
moto lacks.

moto keeps instances, disks and interfaces as EC2 describes them. A `Lease` joins moto's instance to
the machine behind it and to its bill. Codes and texts of ends are those of `StateReason` in the EC2
API Reference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from moto.ec2.models.core import TaggedEC2Resource

from tests.cloud.api import Rented, now_micros
from tests.cloud.aws_metadata import InstanceMetadata
from tests.cloud.host import MachineHost

SECOND = 1_000_000
HOUR = 3600 * SECOND
_MIN_SECONDS = 60
SHUT_DOWN_SECONDS = 30.0
"""How long a machine may take to shut down before it is switched off."""


@dataclass(frozen=True)
class End:
    """How an instance ended, as `StateReason`, as the reason of the transition, and as the state of
    a spot request.
    """

    code: str
    message: str
    transition: str
    spot_status: str
    timed: bool = False
    evicted: bool = False


_SPOT = (
    "Server.SpotInstanceTermination",
    "Spot instance termination",
    "Server.SpotInstanceTermination",
)
# Only calls of the API leave their time in the reason of the transition: published answers of
# DescribeInstances for instances that shut themselves down or were evicted have none.
BY_USER = End(
    "Client.UserInitiatedShutdown",
    "User initiated shutdown",
    "User initiated",
    "instance-terminated-by-user",
    timed=True,
)
FROM_INSIDE = End(
    "Client.InstanceInitiatedShutdown",
    "Instance initiated shutdown",
    "User initiated",
    "instance-terminated-by-user",
)
NO_CAPACITY = End(*_SPOT, "instance-terminated-no-capacity", evicted=True)
PRICE = End(*_SPOT, "instance-terminated-by-price", evicted=True)


class SpotRequest(TaggedEC2Resource):  # type: ignore[misc]  # moto is not followed
    """A spot request as DescribeSpotInstanceRequests shows it: attributes have the names of the
    API, in snake case.
    """

    def __init__(
        self,
        backend: Any,  # noqa: ANN401
        id: str,  # noqa: A002
        instance: Any,  # noqa: ANN401
        price: str,
        tags: dict[str, str],
    ) -> None:
        self.ec2_backend, self.id, self.spot_instance_request_id = backend, id, id
        self.instance, self.instance_id = instance, instance.id
        self.spot_price, self.type, self.state = price, "one-time", "active"
        self.instance_interruption_behavior, self.product_description = "terminate", "Linux/UNIX"
        self.create_time = datetime.now(UTC)
        self.launched_availability_zone = instance.availability_zone
        self.set_status("fulfilled", "Your Spot request is fulfilled.")
        self.add_tags(tags)

    def set_status(self, code: str, message: str = "") -> None:
        self.status = {"Code": code, "Message": message, "UpdateTime": datetime.now(UTC)}
        self.status_code = code


@dataclass
class Lease:
    """An instance that was bought. `price` lists (time, USD): from each time on, an hour costs
    this.
    """

    instance: Any
    region: str
    user_data: bytes
    behavior: str
    max_price: float | None
    request: SpotRequest | None
    price: Callable[[], list[tuple[int, float]]]
    metadata: InstanceMetadata
    private: str = ""
    public: str = ""
    started: int = field(default_factory=now_micros)
    ended: int | None = None
    end: End | None = None
    stopped: int | None = None
    unseen: int = 0

    @property
    def name(self) -> str:
        return str(self.instance.id)

    @property
    def zone(self) -> str:
        return str(self.instance.availability_zone)

    @property
    def spot(self) -> bool:
        return self.request is not None

    @property
    def running(self) -> bool:
        return self.ended is None and self.stopped is None

    def usd(self, now: int) -> float:
        """By the second and for a minute at least; an eviction in the first hour costs nothing."""
        end = next(moment for moment in (self.ended, self.stopped, now) if moment is not None)
        if self.end is not None and self.end.evicted and end - self.started < HOUR:
            return 0.0
        paid_until = max(end, self.started + _MIN_SECONDS * SECOND)
        changes = [*self.price(), (paid_until, 0.0)]
        return sum(
            max(0, min(until, paid_until) - max(since, self.started)) / HOUR * usd
            for (since, usd), (until, _) in pairwise(changes)
        )

    def rented(self, now: int) -> Rented:
        return Rented(
            id=self.name,
            market=f"aws/{self.region}/{self.zone}/{self.instance.instance_type}",
            spot=self.spot,
            state=self.instance.state,
            private=self.private,
            public=self.public,
            started=self.started,
            ended=self.ended,
            reason=self.end.code if self.end else "",
            usd=round(self.usd(now), 9),
            tags={tag["key"]: tag["value"] for tag in self.instance.get_tags()},
        )


class Books:
    """All leases of an account. `host` runs their machines."""

    def __init__(self, host: MachineHost) -> None:
        self.host = host
        self.lock = threading.RLock()
        self.leases: dict[str, Lease] = {}
        self._timers: list[threading.Timer] = []

    def running(self, instance: str) -> Lease:
        """KeyError: no machine of this id is running."""
        lease = self.leases.get(instance)
        if lease is None or not lease.running:
            raise KeyError(f"no instance {instance} is running")
        return lease

    def end(self, lease: Lease, end: End, seconds: float | None) -> None:
        """Ends the bill now, and the machine within `seconds` (None: at once), without waiting for
        that.
        """
        with self.lock:
            if lease.ended is not None:
                return
            lease.ended, lease.end = now_micros(), end
            _set_state(lease.instance, "shutting-down", 32)
        threading.Thread(target=self._end_machine, args=(lease, seconds), daemon=True).start()

    def ended_by_itself(self, name: str) -> None:
        """The machine has powered itself off: the instance is terminated, or, by EC2's default,
        only stopped.
        """
        with self.lock:
            lease = self.leases[name]
            if not lease.running:
                return
            if lease.behavior != "terminate":
                lease.stopped = now_micros()
                _set_state(lease.instance, "stopped", 80)
                _set_reason(lease.instance, FROM_INSIDE)
                return
            lease.ended, lease.end = now_micros(), FROM_INSIDE
        self._conclude(lease)

    def evict(self, lease: Lease, end: End, warning_seconds: float | None) -> None:
        """Announces the end, and carries it out when the warning is over."""
        if lease.request is None:
            raise ValueError(f"{lease.name} is not a spot instance")
        if warning_seconds is None:
            self.end(lease, end, None)
            return
        lease.request.set_status(
            end.spot_status.replace("instance-terminated", "marked-for-termination")
        )
        lease.metadata.evicted_at = now_micros() + int(warning_seconds * SECOND)
        self.after(warning_seconds, lambda: self.end(lease, end, SHUT_DOWN_SECONDS))

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, work)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for lease in list(self.leases.values()):
            if lease.ended is None:
                # A host that is closed has ended it.
                with suppress(OSError):
                    self.host.power_off(lease.name)

    def _end_machine(self, lease: Lease, seconds: float | None) -> None:
        # The host may be closed meanwhile, which ends the machine, too.
        try:
            if seconds is None:
                self.host.power_off(lease.name)
            else:
                self.host.shut_down(lease.name, seconds)
        except OSError:
            return
        self._conclude(lease)

    def _conclude(self, lease: Lease) -> None:
        """Releases what the instance used."""
        assert lease.end is not None
        with self.lock:
            lease.instance.terminate()
            _set_reason(lease.instance, lease.end)
            if lease.request is not None:
                lease.request.state = "closed"
                lease.request.set_status(lease.end.spot_status)


def _set_state(instance: Any, name: str, code: int) -> None:  # noqa: ANN401  # moto's
    instance._state.name, instance._state.code = name, code


def _set_reason(instance: Any, end: End) -> None:  # noqa: ANN401  # moto's
    instance.state_reason.code, instance.state_reason.message = (
        end.code,
        f"{end.code}: {end.message}",
    )
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S GMT")
    instance._reason = f"{end.transition} ({when})" if end.timed else end.transition
