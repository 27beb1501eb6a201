"""`AgentLink`: the `MachineLink` to an agent, over a socket.

The wire format and its authentication are in `spotctl.agent.link.wire`, the agent in `spotctl.agent.machine`. A link is
opened by its provider, which knows how its machines are reached and where the secret is kept (`link_key`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from spotctl.agent.container.payload import Payload
from spotctl.agent.errors import (
    AgentError,
    LinkLost,
    LinkTimeout,
    MachineEnding,
    RequestRefused,
    WrongSecret,
)
from spotctl.agent.link.client import AgentAddress, LinkClient
from spotctl.agent.link.usage import GpuUse, Traffic
from spotctl.agent.link.wire import SECRET_BYTES
from spotctl.clouds.base import CloudProvider, ExecResult, Machine, MachineNotice, MachineState, MachineStatus
from spotctl.clouds.capabilities import KeepsOutput
from spotctl.clouds.errors import NotFound, NotPermitted, ProviderError, Unanswered, Unusable
from spotctl.clouds.installation import read_or_create
from spotctl.home.errors import BadRequest

CALL_SECONDS = 2.0
"""How long a call waits for an agent: much less than a lease, because the caller serves all machines in turn. A slow
agent still carries the request out."""

SILENT_SECONDS = 5.0
"""The pause before a machine that did not answer in time is asked again, so that it does not delay the others."""

_EXEC_POLL_SECONDS = 0.03


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
    """The link to an agent, which connects at its first use, and again after a failure.

    `address` returns where to reach the agent, or raises Unanswered while the agent cannot be reached. `gone` is asked
    about a machine that does not answer: whether its provider knows that the machine has ended.
    """

    def __init__(
        self,
        address: Callable[[], AgentAddress],
        machine: str,
        secret: bytes,
        clock: ProviderClock,
        gone: Callable[[], bool],
    ) -> None:
        self._address, self._machine, self._secret = address, machine, secret
        self._clock, self._gone = clock, gone
        self._client: LinkClient | None = None
        self._silent_until = 0.0

    def assign(self, payload: Payload) -> None:
        self._call("assign", payload=payload.to_json())

    def renew(self, lease_until: int) -> None:
        """See `MachineLink`. The agent gets seconds, because its clock is not the provider's."""
        now = self._clock.now()
        until = max(lease_until, now)
        self._call("renew", until=until, seconds=self._until(until, now))

    def status(self) -> MachineStatus:
        answer = self._call("status")
        gpus = GpuUse(**answer["cards"]) if "cards" in answer else None
        traffic = Traffic(**answer["traffic"]) if "traffic" in answer else None
        work, code, until, notices = (answer[key] for key in ("work", "exit_code", "lease_until", "notices"))
        return MachineStatus(work, code, until, notices, gpus, traffic)

    def notify(self, kind: str, until: int, source: str) -> None:
        self._call("notify", kind=kind, until=until, seconds=self._until(until, self._clock.now()), source=source)

    def notices(self) -> tuple[MachineNotice, ...]:
        notices = self._call("notices")["notices"]
        return tuple(MachineNotice(notice["kind"], notice["until"], notice["source"]) for notice in notices)

    def output(self, after: int = 0) -> bytes:
        return base64.b64decode(self._call("output", after=after)["output"])

    def output_times(self, after: int = 0) -> bytes:
        return base64.b64decode(self._call("output_times", after=after)["times"])

    def exec(self, command: Sequence[str]) -> ExecResult:
        # `exec` must not be retried, so a call that may be makes sure that the connection is alive.
        self._call("status")
        number, out, err = self._call("exec", retry=False, command=list(command))["id"], b"", b""
        while True:
            try:
                answer = self._call("exec_read", retry=False, id=number, out=len(out), err=len(err))
            except NotFound:
                # The machine has ended, and killed the command.
                return ExecResult(-signal.SIGKILL, out, err)
            out += base64.b64decode(answer["out"])
            err += base64.b64decode(answer["err"])
            if answer["code"] is not None:
                return ExecResult(answer["code"], out, err)
            if not answer["out"] and not answer["err"]:
                time.sleep(_EXEC_POLL_SECONDS)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _until(self, moment: int, now: int) -> float:
        return max(moment - now, 0) / self._clock.speed / 1e6

    def _call(self, operation: str, *, retry: bool = True, **arguments: object) -> dict[str, Any]:
        if time.monotonic() < self._silent_until:
            raise Unanswered(f"{self._machine}: its agent did not answer; spotctl asks again in a few seconds")
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
                # A connection that was idle may have died long ago; a new one shows whether the agent still answers.
                return self._call(operation, retry=False, **arguments)
            self._raise_if_gone()
            raise Unanswered(f"{error}; the machine may be starting or gone: try again") from None
        except WrongSecret as error:
            self.close()
            raise NotPermitted(f"{error}; was the machine rented from another home?") from None
        except MachineEnding as error:
            raise NotFound(f"{error}; the machine is gone", (self._machine,)) from None
        except RequestRefused as error:
            raise BadRequest(str(error)) from None
        except AgentError as error:
            raise ProviderError(str(error)) from None

    def _raise_if_gone(self) -> None:
        if self._gone():
            raise NotFound(f"{self._machine}: gone (evicted or returned)", (self._machine,)) from None

    def _connect(self) -> LinkClient:
        if self._client is None:
            self._client = LinkClient(self._address(), self._machine, self._secret, CALL_SECONDS)
        return self._client


def link_key(folder: Path) -> bytes:
    """The key from which the secrets of links are derived: a file that only its owner can read, made once."""
    return bytes.fromhex(read_or_create(folder / "link.key", secrets.token_hex(SECRET_BYTES).encode()).decode())


def link_secret(key: bytes, machine: str) -> bytes:
    """The secret of one machine's link. The machine does not get the key, so it cannot speak for another machine."""
    return hmac.digest(key, f"link {machine}".encode(), hashlib.sha256)


def with_status(
    provider: CloudProvider, machine: Machine, on_silence: Callable[[ProviderError], None] = lambda _: None
) -> Machine:
    """A listed machine with its agent's report. A machine whose agent does not answer counts as STARTING.

    `on_silence` gets the reason for the silence, which is no error: the caller has other machines to ask.
    """
    if machine.state not in (MachineState.RUNNING, MachineState.LEAVING):
        return machine
    try:
        link = provider.link(machine.id)
        status = link.status()
        notices = link.notices() if status.notices else ()
    except ProviderError as error:
        on_silence(error)
        return replace(machine, state=MachineState.STARTING)
    warned_until = min((notice.until for notice in notices if notice.kind == "evict"), default=None)
    state = machine.state if warned_until is None else MachineState.LEAVING
    reported = replace(machine, work=status.work, exit_code=status.exit_code)
    return replace(reported, state=state, warned_until=warned_until, gpus=status.gpus, traffic=status.traffic)


def printed(provider: CloudProvider, machine: str, after: int = 0) -> bytes:
    """The output of a machine's payloads: from the agent, or once the machine is gone, as its provider kept it."""
    try:
        return _all(provider.link(machine).output, after)
    except (NotFound, Unanswered):
        if isinstance(provider, KeepsOutput):
            return provider.output(machine, after)
        raise


def printed_at(provider: CloudProvider, machine: str, after: int = 0) -> bytes:
    """The times of that output: a file of `spotctl.agent.link.output`; empty if the agent is too old to note them."""
    try:
        return _all(provider.link(machine).output_times, after)
    except BadRequest:
        return b""
    except (NotFound, Unanswered):
        if isinstance(provider, KeepsOutput):
            return provider.output_times(machine, after)
        raise


def _all(output: Callable[[int], bytes], after: int) -> bytes:
    parts, at = [], after
    while part := output(at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
