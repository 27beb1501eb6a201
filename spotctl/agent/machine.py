"""`MachineAgent`: the process on a rented machine that serves its launcher, and ends the machine in
time.

`fork_agent` forks it from the process that supervises the machine; only that process ends the
machine.

Responsibilities:

- **The agent** serves its link (`link.wire`) and runs one payload at a time. It keeps the lease:
  when that ends without a renewal, or on SIGTERM (how an operating system announces its shutdown),
  the agent ends its payload, with grace, and exits; the machine's provider ends the machine when
  its agent has exited. None of this needs a launcher, so a machine survives the launcher's SIGKILL
  and never outlives its lease. A launcher that comes back finds the machine in the provider's list,
  connects again, and sees in `status` what the machine runs.
- **The link's secret** reaches the agent in memory, from its parent process. The secret is in no
  file of the machine, argument, environment variable or log; the launcher derives it from a file
  that only its owner can read.
- **Whether and when the market evicts** the machine is unknown to the agent, which learns of an
  eviction as a notice.

The agent's folder holds `lease.json` (for the agent's parent process: the end of the lease, as the
launcher gave it and on this machine's monotonic clock), `output` (what payloads print),
`output.times` (when), `job/` (the folder of `spotctl.agent.lease.lease_files`) and `work/`, the
payload's own folder.

Operations of the link (`AgentLink` documents them for callers): `assign`, `renew`, `status`,
`notify`, `notices`, `output`, `output_times`, `exec`, `exec_read`. All may be repeated: assigning
the name that the agent has already changes nothing.
"""

import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from spotctl.agent.container.payload import Payload
from spotctl.agent.container.processes import MARK, RunningCommand, dies_with
from spotctl.agent.errors import BrokenProtocol, MachineEnding
from spotctl.agent.files import replace_json
from spotctl.agent.layout import LEASE_VARIABLE
from spotctl.agent.lease.lease_files import KINDS, LeaseGrantor, MachineNotice, SecondsClock
from spotctl.agent.link.output import (
    EVERY_SECONDS,
    OUTPUT_CHUNK,
    Executions,
    OutputTimes,
    read_chunk,
    times_file,
)
from spotctl.agent.link.server import LinkServer
from spotctl.agent.link.usage import GpuWatch, traffic

INDEX_VARIABLE, ID_VARIABLE = "SPOTCTL_INDEX", "SPOTCTL_MACHINE_ID"

SHUT_DOWN, LEASE_ENDED = 0, 3
"""The agent's exit codes after a request to end, and at the lease's end. Any other end is a failure
of the machine."""

_LONGEST_WAIT = 3600.0
_REFUSED_WHILE_ENDING = ("assign", "renew", "exec")
_STOPPING_POLL = 0.02
_STOOD_SECONDS = 0.5
"""A lease that the standing clock has lengthened by this much is granted to the payload again."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of an agent. `lease_until` is the provider's time, which the agent only repeats.

    `payload_folder` is for payloads that name no folder; unset, they run in a folder of the
    machine's own. `counts_traffic`: the machine's network interfaces are its own.
    """

    folder: Path
    machine: str
    index: int
    lease_until: int
    lease_seconds: float
    payload: Payload | None = None
    payload_folder: str = ""
    counts_traffic: bool = False


class MachineAgent:
    """One machine's agent. It has one thread, sleeps until something is due, and never waits for a
    caller.
    """

    def __init__(
        self,
        settings: AgentSettings,
        listener: socket.socket,
        secret: bytes,
        clock: SecondsClock = time.monotonic,
    ) -> None:
        """`clock` is that of leases and notices; a clock that stands gives the payload more
        time."""
        self._settings, self._folder, self._clock = settings, settings.folder, clock
        self._job = LeaseGrantor(settings.folder / "job")
        self._execs = Executions(settings.folder)
        self._output = settings.folder / "output"
        self._times = OutputTimes(self._output)
        self._gpus = GpuWatch(settings.folder)
        self._server = LinkServer(listener, settings.machine, secret, self._handle, self._execs.end)
        self._lease_until, self._lease_end = settings.lease_until, clock() + settings.lease_seconds
        self._payload: Payload | None = None
        self._command: RunningCommand | None = None
        self._kill_at: float | None = None
        self._running_grace = 0.0
        self._exit_code: int | None = None

        # With the moment of each on the clock, in seconds.
        self._notices: dict[MachineNotice, float] = {}
        self._ending = False
        self._wake_ups = WakeUps()

    def run(self, ready: Callable[[], None]) -> int:
        """Serves until the machine is to end; returns one of the exit codes above. Calls `ready`
        once it serves.
        """
        # The death of a child wakes the loop; SIGTERM asks the agent to end.
        self._wake_ups.listen()
        self._server.watch(self._wake_ups.descriptors[0])
        try:
            if self._settings.payload is not None:
                self._assign(self._settings.payload)
                self._advance()
            ready()
            while not self._wake_ups.told_to_end and self._clock() < self._lease_end:
                self._advance()
                self._server.serve(self._wait())

            code = SHUT_DOWN if self._wake_ups.told_to_end else LEASE_ENDED
            self._ending = True
            self._stop_payload()
            while self._command is not None:
                self._server.serve(_STOPPING_POLL)
                self._advance(starting=False)
        finally:
            self._execs.end()
            self._gpus.end()
            if self._command is not None:
                self._command.finish()
            self._server.close()

        return code

    # -- the payload -------------------------------------------------------------------------------

    def _assign(self, payload: Payload) -> None:
        if self._payload is not None and self._payload.name == payload.name:
            return
        self._stop_payload()
        self._payload, self._exit_code = payload, None

    def _stop_payload(self) -> None:
        """Asks the running command to end; `_advance` kills the command once its grace is over."""
        if self._command is None or self._kill_at is not None:
            return

        # Until a known eviction at the latest.
        evictions = [
            deadline for notice, deadline in self._notices.items() if notice.kind == "evict"
        ]
        left = min(evictions, default=float("inf")) - self._clock()
        grace = max(min(self._running_grace, left), 0.0)
        self._kill_at = self._clock() + grace
        if grace > 0:
            self._command.terminate()

    def _advance(self, *, starting: bool = True) -> None:
        """Follows the payload: notes its exit code, finishes a stopped command, and starts the next
        payload.
        """
        self._execs.advance()
        if self._command is not None:
            code = self._command.exit_code()
            self._times.note(now=code is not None)
            if self._kill_at is not None and (code is not None or self._clock() >= self._kill_at):
                self._command.finish()
                self._command = self._kill_at = None
            elif self._kill_at is None:
                self._exit_code = code
                left = self._lease_end - self._clock()
                if time.monotonic() + left > self._job.granted_until + _STOOD_SECONDS:
                    self._job.grant(left)

        if (
            starting
            and self._command is None
            and self._payload is not None
            and self._exit_code is None
        ):
            self._start(self._payload)

    def _start(self, payload: Payload) -> None:
        own = self._folder / "work"
        own.mkdir(exist_ok=True)
        self._job.begin(max(self._lease_end - self._clock(), 0.0))
        environment = {
            **os.environ,
            **payload.environment,
            MARK: str(self._folder),
            INDEX_VARIABLE: str(self._settings.index),
            ID_VARIABLE: self._settings.machine,
            LEASE_VARIABLE: str(self._job.folder),
        }

        folder = Path(payload.folder or self._settings.payload_folder or own)
        self._command = RunningCommand(
            payload.command, folder, environment, self._output, self._folder
        )
        self._running_grace = payload.grace_seconds

        for notice, deadline in self._notices.items():
            self._pass_on(notice, deadline)

    # -- lease and notices -------------------------------------------------------------------------

    def _renew(self, until: int, seconds: float) -> None:
        # Written before the answer: the agent's parent process must know every lease that the
        # launcher counts on.
        end = self._clock() + seconds
        replace_json(self._folder / "lease.json", {"until": until, "monotonic": end})
        self._lease_until, self._lease_end = until, end
        if self._command is not None:
            self._job.grant(seconds)

    def _notify(self, notice: MachineNotice, seconds: float) -> None:
        if notice.kind not in KINDS:
            raise BrokenProtocol(
                f"notice of kind {notice.kind!r}: expected one of {', '.join(KINDS)}"
            )
        if notice not in self._notices:
            self._notices[notice] = self._clock() + seconds
            self._pass_on(notice, self._notices[notice])

    def _pass_on(self, notice: MachineNotice, deadline: float) -> None:
        if self._command is None or self._payload is None:
            return
        self._job.notify(notice.kind, max(deadline - self._clock(), 0.0), notice.source)
        if notice.kind != "hint" and self._payload.term_at_notice:
            self._command.terminate()

    # -- the link ----------------------------------------------------------------------------------

    def _handle(self, connection: int, request: dict[str, Any]) -> dict[str, Any]:
        operation = str(request.get("do"))
        if self._ending and operation in _REFUSED_WHILE_ENDING:
            raise MachineEnding(f"{self._settings.machine} is ending")
        try:
            return self._answer(operation, connection, request)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BrokenProtocol(
                f"bad arguments of {operation}: {type(error).__name__} {error}"
            ) from None

    def _answer(self, operation: str, connection: int, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        match operation:
            case "assign":
                self._assign(Payload.from_json(request["payload"]))
            case "renew":
                self._renew(int(request["until"]), float(request["seconds"]))
            case "status":
                answer = self._status()
            case "notify":
                notice = MachineNotice(
                    str(request["kind"]), int(request["until"]), str(request["source"])
                )
                self._notify(notice, float(request["seconds"]))
            case "notices":
                answer = {"notices": [asdict(notice) for notice in self._notices]}
            case "output":
                after = int(request["after"])
                # Output that a caller has read must have a time.
                self._times.note(now=True)
                answer = {"output": read_chunk(self._output, after, OUTPUT_CHUNK)}
            case "output_times":
                answer = {
                    "times": read_chunk(
                        times_file(self._output), int(request["after"]), OUTPUT_CHUNK
                    )
                }
            case "exec":
                command = tuple(map(str, request["command"]))
                answer = {"id": self._execs.start(connection, command, self._payload)}
            case "exec_read":
                out, err = int(request["out"]), int(request["err"])
                answer = self._execs.read(connection, int(request["id"]), out, err)
            case _:
                raise BrokenProtocol(f"unknown operation {operation[:40]!r}")

        return answer

    def _status(self) -> dict[str, Any]:
        name, gpus = "" if self._payload is None else self._payload.name, self._gpus.use()
        bytes_moved = traffic() if self._settings.counts_traffic else None
        return {
            "work": name,
            "exit_code": self._exit_code,
            "lease_until": self._lease_until,
            "notices": len(self._notices),
            **({} if gpus is None else {"cards": asdict(gpus)}),
            **({} if bytes_moved is None else {"traffic": asdict(bytes_moved)}),
        }

    # -- the loop ----------------------------------------------------------------------------------

    def _wait(self) -> float:
        """Seconds until something is due by itself; signals and callers end the wait early."""
        if self._wake_ups.told_to_end:
            return 0.0
        if self._kill_at is not None or self._execs.running:
            return _STOPPING_POLL
        if self._command is None and self._payload is not None and self._exit_code is None:
            return 0.0

        longest = (
            EVERY_SECONDS
            if self._command is not None and self._exit_code is None
            else _LONGEST_WAIT
        )

        left = self._lease_end - self._clock()
        # The clock may stand just before the end.
        return 0.0 if left <= 0 else min(max(left, _STOPPING_POLL), longest)


def fork_agent(agent: Callable[[], MachineAgent], unwanted: Sequence[int]) -> int:
    """Starts the agent and returns its process id once it serves, or has died. The agent never
    outlives this process.

    `unwanted` are descriptors that the agent must not inherit.
    """
    ready, parent = os.pipe(), os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for descriptor in (*unwanted, ready[0]):
                os.close(descriptor)
            die_with_parent = dies_with(parent)
            if die_with_parent is not None:
                die_with_parent()
            status = agent().run(ready=partial(os.close, ready[1]))
        # A fork must not continue in its parent's code, whatever happens.
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    os.close(ready[1])
    os.read(ready[0], 1)
    os.close(ready[0])
    return pid


class WakeUps:
    """Pauses that signals end, through a pipe, so that no signal arrives unseen just before a pause
    begins.
    """

    def __init__(self) -> None:
        self.descriptors = os.pipe()
        """The pipe's ends, which children must close."""
        self.told_to_end = False
        """Whether this process was asked to end since it listens."""

    def listen(self, on_signal: Callable[..., None] | None = None) -> None:
        """Notes from now on when this process is asked to end, or has `on_signal` called."""
        for end in self.descriptors:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self.descriptors[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._note)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, on_signal or self._note)

    def _note(self, number: int, _: object) -> None:
        self.told_to_end = self.told_to_end or number != signal.SIGCHLD

    def pause(self, seconds: float) -> None:
        if select.select([self.descriptors[0]], [], [], seconds)[0]:
            os.read(self.descriptors[0], 4096)
