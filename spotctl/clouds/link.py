"""`AgentLink`: what a machine's agent can do, over a socket.

The wire format and its authentication are in `spotctl.agent.link.wire`, the agent in
`spotctl.agent.machine`. A link is opened by its provider, which knows how its machines are reached
and where the secret is kept (`link_key`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec

from pricing_data.units import MINUTE, SECOND
from spotctl.agent.container.payload import Payload
from spotctl.agent.errors import (
    AgentError,
    LinkLost,
    LinkTimeout,
    MachineEnding,
    RequestRefused,
    WrongSecret,
)
from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.agent.link.output import OUTPUT_CHUNK
from spotctl.agent.link.usage import GpuUse, Traffic
from spotctl.agent.link.wire import SECRET_BYTES, AgentAddress, LinkClient
from spotctl.clouds.errors import NotFound, NotPermitted, ProviderError, Unanswered, Unusable
from spotctl.home.errors import BadRequest
from spotctl.home.installation import read_or_create

if TYPE_CHECKING:
    from spotctl.files.job.spec import JobSpec

CALL_SECONDS = 2.0
"""How long a call waits for an agent: much less than a lease, because the caller serves all
machines in turn. A slow agent still carries the request out."""

SILENT_SECONDS = 5.0
"""The pause before a machine that did not answer in time is asked again, so that it does not delay
the others."""

_EXEC_POLL_SECONDS = 0.03

MAX_READ = 32 << 20
"""Bytes of output that are read at a time, and of a command that `exec` runs: a machine may print
without end."""

_LATEST = 10**17
"""A moment after all that are meant: a machine may name any, and calendars end."""

_MAY_REFUSE = ("assign", "exec", "exec_read", "output_times")


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """An agent's report: the payload that it was last given, how that ended, its lease, and its
    number of notices.

    `exit_code` is negative for the signal that ended the payload, and None until it has ended.
    `cards` is None where nothing is known of GPUs, and `traffic` where the machine's interfaces are
    not its own; both from an agent of an earlier version.
    """

    work: str
    exit_code: Annotated[int, msgspec.Meta(ge=-255, le=1 << 32)] | None
    lease_until: Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]
    notices: Annotated[int, msgspec.Meta(ge=0)]
    gpus: GpuUse | None = None
    traffic: Traffic | None = None


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The exit code of a command on a machine (127: it could not be started), and its output."""

    exit_code: int
    out: bytes
    err: bytes


def _reached(_: int) -> None:
    """A machine without a connection that could break."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command of this computer that runs another on a machine. Never print it: its environment
    may hold secrets.

    `lost` explains an exit code: why the machine was not reached, or the connection broke. None:
    the code is that of the command on the machine.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    folder: str
    lost: Callable[[int], ProviderError | None] = field(default=_reached, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReverseTunnel:
    """A port of the launcher that machines reach at a port of their own loopback interface."""

    port: int
    host: str
    host_port: int


@dataclass(frozen=True, slots=True)
class MachineSupplies:
    """Secrets, files and packages that a launcher copies to a booted machine; the cloud sees none
    of them.

    `secrets` become environment variables of payloads and are never written. `folder` is copied to
    the machine, where payloads find it as their working directory. `packages` are installed
    distributions of the launcher that payloads import; their requirements are copied, too. `ports`
    are where machines of the run reach each other: an order names them where a cloud must map them.
    `own_secrets` are those that only the machine of this id may know.
    """

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: Path | None = None
    reach: tuple[ReverseTunnel, ...] = ()
    packages: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    own_secrets: Callable[[str], Mapping[str, str]] | None = field(default=None, repr=False)


class ProviderClock(Protocol):
    """The part of a provider that converts the provider's times to seconds of a machine."""

    @property
    def speed(self) -> float:
        """Seconds of the provider's clock per second."""
        ...

    def now(self) -> int:
        """The provider's clock."""
        ...


class AgentLink:
    """The link to one machine's agent, which connects at its first use, and again after a failure.
    Times are microseconds of the provider's clock. All calls but `exec` may be repeated.

    Every call may raise NotFound (the machine is gone or ending), Unanswered (the call may or may
    not have been carried out, or the answer makes no sense) or NotPermitted (the secret is wrong).

    `address` returns where to reach the agent, or raises Unanswered while the agent cannot be
    reached. `gone` is asked about a machine that does not answer: whether its provider knows that
    the machine has ended. `extend_lease` renews the lease, for some seconds, of a machine to which
    its agent is still being brought; whether it has.
    """

    def __init__(
        self,
        address: Callable[[], AgentAddress],
        machine: str,
        secret: bytes,
        clock: ProviderClock,
        gone: Callable[[], bool],
        extend_lease: Callable[[float], bool] | None = None,
    ) -> None:
        self._address, self._machine, self._secret = address, machine, secret
        self._clock, self._gone, self._extend_lease = clock, gone, extend_lease
        self._client: LinkClient | None = None
        self._silent_until = 0.0

    def assign(self, payload: Payload) -> None:
        """Replaces the machine's payload. A payload with the name of the last one changes
        nothing."""
        self._call("assign", payload=payload.to_json())

    def renew(self, lease_until: int) -> None:
        """Moves the end of the lease; a moment that has passed ends the machine now. The agent gets
        seconds, because its clock is not the provider's."""
        now = self._clock.now()
        until = max(lease_until, now)
        try:
            self._call("renew", until=until, seconds=self._until(until, now))
        except Unanswered:
            if self._extend_lease is None or not self._extend_lease(
                self._until(until, self._clock.now())
            ):
                raise

    def status(self) -> MachineStatus:
        """The agent's report."""
        answer = self._call("status")
        status: MachineStatus = self._understood(
            {**answer, "gpus": answer.get("cards")}, MachineStatus
        )
        return status

    def notify(self, kind: str, until: int, source: str) -> None:
        """Delivers a notice to the machine and its payload; `kind` is "hint", "evict", "move" or
        "stop".
        """
        self._call(
            "notify",
            kind=kind,
            until=until,
            seconds=self._until(until, self._clock.now()),
            source=source,
        )

    def notices(self) -> tuple[MachineNotice, ...]:
        """The notices that the machine has received, in order."""
        notices = self._understood(self._call("notices").get("notices"), tuple[MachineNotice, ...])
        return tuple(
            replace(notice, until=min(max(notice.until, 0), _LATEST)) for notice in notices
        )

    def output(self, after: int = 0) -> bytes:
        """The output of the machine's payloads from this byte offset on, a part at a time; empty:
        no more for now.
        """
        output: bytes = self._understood(self._call("output", after=after).get("output"), bytes)
        return output

    def output_times(self, after: int = 0) -> bytes:
        """The times of that output: a file of `spotctl.agent.link.output` from this byte offset on,
        a part at a time.

        BadRequest: the agent is older than this operation.
        """
        times: bytes = self._understood(self._call("output_times", after=after).get("times"), bytes)
        return times

    def exec(self, command: Sequence[str]) -> ExecResult:
        """Runs a command in the folder and environment of the payload, and waits for the command's
        end.

        A command ends with the machine or with this connection at the latest. BadRequest: the agent
        refuses it.
        """
        # `exec` must not be retried, so a call that may be makes sure that the connection is alive.
        self._call("status")
        number = self._understood(
            self._call("exec", retry=False, command=list(command)).get("id"), int
        )
        out, err = bytearray(), bytearray()

        while len(out) + len(err) <= MAX_READ:
            try:
                answer = self._call("exec_read", retry=False, id=number, out=len(out), err=len(err))
            except NotFound:
                # The machine has ended, and killed the command.
                return ExecResult(-signal.SIGKILL, bytes(out), bytes(err))
            printed = self._understood([answer.get("out"), answer.get("err")], tuple[bytes, bytes])
            out, err = out + printed[0], err + printed[1]
            if (code := self._understood(answer.get("code"), int | None)) is not None:
                return ExecResult(code, bytes(out), bytes(err))
            if not any(printed):
                time.sleep(_EXEC_POLL_SECONDS)

        self.close()
        problem = (
            f"{self._machine}: the command prints more than {MAX_READ >> 20} MiB: redirect it to "
            "a file"
        )
        raise ProviderError(problem)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # A type, and a value of it.
    def _understood(self, given: object, kind: Any) -> Any:  # noqa: ANN401
        """A part of an answer. Unanswered: it makes no sense: the machine is broken, or someone has
        taken it over.
        """
        try:
            # By way of JSON, whose integers have 64 bits, as those of the log.
            return msgspec.json.decode(msgspec.json.encode(given), type=kind)
        except (msgspec.MsgspecError, OverflowError, ValueError, RecursionError) as error:
            why = (
                f"its agent's answer makes no sense ({str(error)[:100]}): replace the machine if "
                "it goes on"
            )
            raise Unanswered(f"{self._machine}: {why}") from None

    def _until(self, moment: int, now: int) -> float:
        return max(moment - now, 0) / self._clock.speed / 1e6

    def _call(self, operation: str, *, retry: bool = True, **arguments: object) -> dict[str, Any]:
        if time.monotonic() < self._silent_until:
            cure = "spotctl asks again in a few seconds"
            raise Unanswered(f"{self._machine}: its agent did not answer; {cure}")
        try:
            return self._connect().call(operation, **arguments)
        except (Unanswered, Unusable):
            self._raise_if_gone()
            raise
        except LinkLost as error:
            was_open = self._client is not None
            self.close()
            if isinstance(error, LinkTimeout):
                self._silent_until = time.monotonic() + SILENT_SECONDS
            elif retry and was_open:
                # A connection that was idle may have died long ago; a new one shows whether the
                # agent still answers.
                return self._call(operation, retry=False, **arguments)
            self._raise_if_gone()
            raise Unanswered(f"{error}; the machine may be starting or gone: try again") from None
        except WrongSecret as error:
            self.close()
            raise NotPermitted(f"{error}; was the machine rented from another home?") from None
        except MachineEnding as error:
            cure = "the machine is gone"
            raise NotFound(f"{self._machine}: {error}; {cure}", (self._machine,)) from None
        except RequestRefused as error:
            raise (BadRequest if operation in _MAY_REFUSE else Unanswered)(str(error)) from None
        except AgentError as error:
            raise ProviderError(str(error)) from None

    def _raise_if_gone(self) -> None:
        if self._gone():
            raise NotFound(
                f"{self._machine}: gone (evicted or returned)", (self._machine,)
            ) from None

    def _connect(self) -> LinkClient:
        if self._client is None:
            self._client = LinkClient(self._address(), self._machine, self._secret, CALL_SECONDS)
        return self._client


def link_key(folder: Path) -> bytes:
    """The key from which the secrets of links are derived: a file that only its owner can read,
    made once.
    """
    return bytes.fromhex(
        read_or_create(folder / "link.key", secrets.token_hex(SECRET_BYTES).encode()).decode()
    )


def link_secret(key: bytes, machine: str) -> bytes:
    """The secret of one machine's link. The machine does not get the key, so it cannot speak for
    another machine.
    """
    return hmac.digest(key, f"link {machine}".encode(), hashlib.sha256)


def whole(output: Callable[[int], bytes], after: int) -> bytes:
    """The content that a link returns in parts, from this byte on: all of it, or as much as may be
    read at a time.
    """
    parts, at = [b""], after
    while at - after < MAX_READ and (part := output(at)):
        parts.append(part)
        at += len(part)
        # Of a machine that prints a byte at a time, reading would never come to an end.
        if len(part) < OUTPUT_CHUNK:
            break
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in microseconds of the provider's clock.

    A lease lasts `lease` and is renewed when less than `renew_before` of it is left. A machine is
    gone `teardown` after the end of its lease at the latest, and is ready for work `startup` after
    it was rented. Before a machine is returned, its work is warned `notice` ahead; a return at the
    end of a paid hour is requested as long before it.
    """

    lease: int = 15 * MINUTE
    renew_before: int = 10 * MINUTE
    teardown: int = 1 * MINUTE
    startup: int = 2 * MINUTE
    notice: int = 30 * SECOND

    @property
    def committed(self) -> int:
        """How long a new machine is paid for if it is not returned: its lease, and until it is
        gone.
        """
        return self.lease + self.teardown

    @classmethod
    def of(cls, spec: JobSpec) -> LeaseTimes:
        """The times of a job's runs: on a cloud, or on the local market, at the speed of its
        clock."""
        if not spec.is_local:
            return cls()

        second = round(spec.local.speed * SECOND)
        return cls(
            lease=12 * second,
            renew_before=8 * second,
            teardown=second,
            startup=second,
            notice=second,
        )
