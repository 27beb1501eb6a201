"""The local market's side of a machine: `python -m spotctl.clouds.local.hypervisor`.

A hypervisor does for a process of this computer what a cloud does for a virtual machine. The
started process reads from its standard input the file of the clock, and the lock, folder and link's
secret of each machine; it forks one hypervisor for each machine, and exits once all are up. A
hypervisor forks the machine's agent (`spotctl.agent.machine`), which serves the link, runs the
payload and keeps the lease. The hypervisor warns the agent over the link as the market planned,
evicts it by SIGKILL, terminates it by SIGTERM, and records in `end.json` when and why the machine
ended, on the market's clock. None of this needs a launcher.

The machine's folder holds, apart from the agent's own files, each replaced as a whole by its one
writer:

- by the provider: `machine.json` (`MachineFile`: the planned end and what the agent starts with),
  `terminate.json` (the machine was terminated `at`; on a full disk a signal says so);
- by the hypervisor: `state.json` (`pid`, `agent` and the `port` of the agent, which is up),
  `end.json`.

`lock` is locked by the process that starts a machine, and hypervisor and agent inherit the lock: a
machine runs exactly as long as its lock is held, however its processes die. On Linux the kernel
kills the agent when its hypervisor dies, and the payload when its agent dies. A machine whose
folder is removed ends itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from spotctl.agent.container.processes import kill, kill_marked
from spotctl.agent.errors import AgentError
from spotctl.agent.files import Watched, replace_json
from spotctl.agent.link.wire import LinkClient
from spotctl.agent.machine import (
    LEASE_ENDED as AGENT_LEASE_ENDED,
    AgentSettings,
    MachineAgent,
    WakeUps,
    fork_agent,
)
from spotctl.clouds.local.clock import Delays, MarketClock
from spotctl.clouds.local.machine_file import (
    EVICTED,
    FAILED,
    HOST,
    LEASE_ENDED,
    RETURN_SIGNAL,
    MachineFile,
    ReplayedEnd,
    end_of,
    warning,
)

SOURCE = "local"

SHUTDOWN_SECONDS = 90.0
"""How long an agent may take to end after SIGTERM; an operating system's shutdown waits about as
long."""

_POLL_SECONDS = 0.1
_SHUTDOWN_POLL = 0.01
_LINK_SECONDS = 5.0


class Hypervisor:
    """Plays the market for one machine, from start to end; closes the descriptor `up` once the
    agent serves.
    """

    def __init__(self, folder: Path, clock: MarketClock, secret: bytes, up: int) -> None:
        self._folder, self._clock, self._secret, self._up = folder, clock, secret, up
        self._machine = Watched(folder / "machine.json", MachineFile.from_json)
        self._renewed = Watched(folder / "lease.json", lambda values: int(values["until"]))
        self._terminated = Watched(folder / "terminate.json", lambda values: int(values["at"]))
        self._agent = 0
        self._agent_status: int | None = None
        self._port = 0
        self._warned_until: int | None = None
        self._killed = self._returned = False
        self._wake_ups = WakeUps()

        # The agent is a child, and its payload a child of that.
        self._delays = Delays(clock, depth=2)

    def run(self) -> None:
        """Runs the machine from its start to its end."""
        self._wake_ups.listen(self._on_signal)
        signal.signal(RETURN_SIGNAL, self._on_signal)
        try:
            end = self._until_end()
        except BaseException:
            self._stop_agent(by_force=True)
            self._record(ReplayedEnd(self._clock.now(), FAILED))
            raise

        self._stop_agent(by_force=end.reason == EVICTED)
        self._record(end)

    def _until_end(self) -> ReplayedEnd:
        machine = self._machine.value()
        if machine is None:
            return ReplayedEnd(self._clock.now(), FAILED)
        if (end := self._due(machine)) is not None:
            return end

        # Returns once the agent serves, or has died.
        self._delays.take_part()
        listener = socket.create_server((HOST, 0))
        self._port = listener.getsockname()[1]
        seconds, until = self._clock.seconds_until(self._lease(machine)), machine.lease_until
        settings = AgentSettings(
            self._folder, machine.id, machine.index, until, seconds, machine.payload
        )
        agent = partial(MachineAgent, settings, listener, self._secret, self._clock.seconds)
        self._agent = fork_agent(agent, (*self._wake_ups.descriptors, self._up))
        listener.close()
        self._poll_agent()
        if self._agent_status is None:
            replace_json(
                self._folder / "state.json",
                {"pid": os.getpid(), "agent": self._agent, "port": self._port},
            )
            os.close(self._up)

        while (end := self._due(machine)) is None:
            self._delays.look()
            self._warn(machine)
            # Until something is due or happens, and no longer than a file may go unread.
            plan = machine.plan
            moments = [
                self._lease(machine),
                plan.taken_at,
                None if self._warned_until else plan.warned_at,
            ]
            waits = [
                max(self._clock.seconds_until(moment), 0.0)
                for moment in moments
                if moment is not None
            ]
            # While the clock stands, nothing becomes due.
            self._wake_ups.pause(max(min([_POLL_SECONDS, *waits]), _SHUTDOWN_POLL))

        return end

    def _due(self, machine: MachineFile) -> ReplayedEnd | None:
        now, lease = self._clock.now(), self._lease(machine)
        if self._killed or not (self._folder / "machine.json").exists():
            return ReplayedEnd(now, FAILED)

        terminated_at = now if self._returned else self._terminated.value()
        if (end := end_of(machine.plan, lease, terminated_at, now)) is not None:
            return end

        self._poll_agent()
        if self._agent_status is None:
            return None

        # The agent's own clock may be a moment ahead of the market's.
        ended_lease = os.waitstatus_to_exitcode(self._agent_status) == AGENT_LEASE_ENDED
        return ReplayedEnd(lease, LEASE_ENDED) if ended_lease else ReplayedEnd(now, FAILED)

    def _lease(self, machine: MachineFile) -> int:
        """The end of the lease, at the end of the market's history at the latest: later prices are
        unknown.
        """
        renewed = self._renewed.value()
        return min(machine.lease_until if renewed is None else renewed, machine.closes_at)

    # -- the agent ---------------------------------------------------------------------------------

    def _poll_agent(self) -> None:
        if self._agent and self._agent_status is None:
            pid, status = os.waitpid(self._agent, os.WNOHANG)
            if pid:
                self._agent_status = status

    def _warn(self, machine: MachineFile) -> None:
        """Tells the agent over its link that the machine will be evicted; an agent that does not
        answer is not told.
        """
        until = warning(machine.plan, self._clock.now())
        if until is None or until == self._warned_until:
            return

        self._warned_until = until
        seconds = max(self._clock.seconds_until(until), 0.0)
        try:
            link = LinkClient(
                (HOST, self._port),
                machine.id,
                self._secret,
                min(_LINK_SECONDS, seconds + _POLL_SECONDS),
            )
            try:
                link.call("notify", kind="evict", until=until, seconds=seconds, source=SOURCE)
            finally:
                link.close()
        except AgentError as error:
            sys.stderr.write(f"the eviction notice was not delivered: {error}\n")

    def _stop_agent(self, *, by_force: bool) -> None:
        """Ends the agent and all that was started on the machine."""
        if self._agent and self._agent_status is None:
            kill(self._agent, signal.SIGKILL if by_force else signal.SIGTERM)
            give_up = time.monotonic() + SHUTDOWN_SECONDS
            while self._agent_status is None:
                self._poll_agent()
                if time.monotonic() > give_up:
                    kill(self._agent)
                self._wake_ups.pause(_SHUTDOWN_POLL)
        kill_marked(self._folder)

    def _record(self, end: ReplayedEnd) -> None:
        if self._folder.is_dir():
            replace_json(self._folder / "end.json", asdict(end), lasting=True)

    # -- signals -----------------------------------------------------------------------------------

    def _on_signal(self, number: int, _: object) -> None:
        if number == RETURN_SIGNAL:
            self._returned = True
        else:
            # SIGTERM, as at the computer's shutdown, counts as a failure of the machine.
            self._killed = True


def main(given: Mapping[str, Any]) -> None:
    """Forks the hypervisors, and returns when each machine is up or has ended."""
    clock = MarketClock(Path(given["clock"]))
    locks = {lock for lock, _, _ in given["machines"]}
    ups: list[int] = []
    for lock, folder, secret in given["machines"]:
        up = os.pipe()
        if os.fork() == 0:
            for descriptor in {up[0], *ups, *(locks - {lock})}:
                os.close(descriptor)
            hypervisor = Hypervisor(Path(folder), clock, bytes.fromhex(secret), up[1])
            status = 1
            try:
                os.setsid()
                hypervisor.run()
                status = 0
            # A fork must not go on in its parent's code, whatever happened.
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)

        os.close(up[1])
        os.close(lock)
        locks.discard(lock)
        ups.append(up[0])

    for descriptor in ups:
        # Nothing is written: the end of the file comes when the hypervisor closes its side, or
        # dies.
        os.read(descriptor, 1)


if __name__ == "__main__":
    main(json.load(sys.stdin))
