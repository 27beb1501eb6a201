"""The work of a command job: a program that goes on from its own checkpoint, wherever its nodes are started."""

from __future__ import annotations

import hashlib
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.agent.checkpoint_sync import latest, note_finished
from spotctl.agent.errors import AgentError
from spotctl.agent.task import Keeping, Task
from spotctl.files.job.spec import Command, JobSpec, data_variable, output_variable
from spotctl.machines.base import CloudProvider, KeepsOutput, Machine, NotPermitted, Payload, ProviderError
from spotctl.run.gang import PREPARE, Ended, Shape, Step, rest_name, run_name, step
from spotctl.run.workload import Verdict
from spotctl.runlog import events as ev
from spotctl.runlog.outcomes import DONE, FAILED
from spotctl.runlog.state import RunState

PAUSE = 0.1
LOOK_SECONDS = 0.5
"""Between looks at where checkpoints are kept."""

GRACE = 20.0
"""Seconds for a program to write its checkpoint, and for the agent to carry it, when its machine is given back."""

SETUPS = 3
"""So many machines may fail to be prepared; then it is the setup."""

MOVES = 5
"""So often in a row a program may end to be moved though nobody asked it to."""

MATES_SECONDS = 5.0
"""How long a node of a gang may have failed until it is its own fault, and not that of a mate that was taken."""

LONGEST = HOUR
"""A checkpoint is written so often at least, where the job leaves it to us."""

INCOMPLETE_SECONDS, INCOMPLETE = 3.0, 5 * MINUTE
"""How long a gang is kept waiting for its last nodes: seconds at least, and so long of the market's time."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run of a command works with.

    `life` says how long it is on average, in microseconds of the provider's clock, until one of so many machines of a
    market is taken that were rented under a bid; `cost` is what a checkpoint is taken to cost before one was seen.
    """

    run: str
    provider: CloudProvider
    secrets: Mapping[str, str]
    cache: Path
    life: Callable[[Market, int | None, int], float]
    cost: int


class CommandWork:
    """Done when the program ends with status 0 on all nodes; a failure of its own is the job's."""

    def __init__(self, spec: JobSpec, around: Surroundings) -> None:
        assert isinstance(spec.program, Command)
        self._spec, self._command, self._around = spec, spec.program, around
        speed = around.provider.speed
        pause = max(INCOMPLETE, round(INCOMPLETE_SECONDS * speed * SECOND))
        self._shape = Shape(self._command.nodes, bool(spec.setup or spec.data), pause)
        self._failing_since: float | None = None
        self._looked_at = 0.0
        self._numbers: dict[int, int] = {}

    def payload(self, order: ev.RentIntended) -> Payload | None:
        """What prepares a machine; the command comes when all nodes are there."""
        if order.reliable or not self._shape.prepares:
            return None
        task = Task(PREPARE, setup=self._spec.setup or "", environment=dict(self._spec.env), **self._files())
        return self._payload(PREPARE, PREPARE, task)

    def secrets(self) -> Mapping[str, str]:
        """Those that the job names."""
        return self._around.secrets

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> Verdict:
        """Sees how nodes and their checkpoints are, and tells machines what to do."""
        time.sleep(PAUSE)
        kept = tuple(self._checkpointed(state))
        if state.stopping is not None:
            return Verdict(told=kept)
        found = step(state, machines, self._shape, now)
        self._tell(state, machines, found)
        unprepared = tuple(ev.SetupFailed(one.machine, one.code, self._tail(one.machine)) for one in found.unprepared)
        told = (*kept, *unprepared, *self._moved(state, found, now))
        outcome, message = self._outcome(state, found, unprepared)
        return Verdict(outcome=outcome, message=message, useless=found.useless, told=told)

    def facts(self) -> Mapping[str, Any]:
        """Where its outputs lie."""
        return {"outputs": dict(self._spec.outputs)} if self._spec.outputs else {}

    def close(self) -> None:
        """Nothing of it runs here."""

    # -- what machines are told ---------------------------------------------------------------------------------------

    def _tell(self, state: RunState, machines: Sequence[Machine], found: Step) -> None:
        attempt = state.work.attempt
        if attempt is None:
            return
        addresses = {machine.id: machine.address for machine in machines}
        if all(one in addresses for one in attempt.machines):
            for machine in found.run:
                self._assign(machine, self._node(state, attempt, machine, addresses))
        for machine in found.rest:
            self._assign(machine, Payload(rest_name(attempt.attempt), ("/bin/sh", "-c", ":"), grace_seconds=0.0))

    def _assign(self, machine: str, payload: Payload) -> None:
        try:
            self._around.provider.assign([machine], payload)
        except NotPermitted:
            raise
        except ProviderError:
            # Whoever is gone will be seen to be; the others are told in the next turn.
            return

    def _node(self, state: RunState, attempt: ev.WorkBegan, machine: str, addresses: Mapping[str, str]) -> Payload:
        """The command on a node, with all that it has to know of the others."""
        rank, nodes = attempt.machines.index(machine), [addresses[one] for one in attempt.machines]
        known = {
            "SPOTCTL_JOB": self._spec.name,
            "SPOTCTL_RUN": self._around.run,
            "SPOTCTL_ATTEMPT": str(attempt.attempt),
            "SPOTCTL_NODES": str(len(nodes)),
            "SPOTCTL_NODE_RANK": str(rank),
            "SPOTCTL_NODE_ADDRESS": nodes[rank],
            "SPOTCTL_NODE_ADDRESSES": ",".join(nodes),
            "MASTER_ADDR": nodes[0],
            "MASTER_PORT": str(attempt.port),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(nodes)),
        }
        task = Task(
            f"{self._around.run}.{attempt.attempt}",
            rank=rank,
            run=self._command.run,
            environment={**known, **self._spec.env},
            keeping=self._keeping(state, attempt),
            **self._files(),
        )
        return self._payload(run_name(attempt.attempt), "run", task)

    def _payload(self, name: str, what: str, task: Task) -> Payload:
        # Nothing of the job's own folder stands in for a module of ours.
        command = (sys.executable, "-P", "-m", "spotctl.agent.node", what, task.to_json())
        return Payload(name, command, folder=str(self._spec.workdir), grace_seconds=GRACE)

    def _files(self) -> dict[str, Any]:
        spec = self._spec
        return {
            "cache": str(self._around.cache),
            "data": {data_variable(name): place for name, place in spec.data.items()},
            "outputs": {output_variable(name): place for name, place in spec.outputs.items()},
        }

    def _keeping(self, state: RunState, attempt: ev.WorkBegan) -> Keeping | None:
        """Times of the market become seconds of the program."""
        checkpoint, around = self._command.checkpoint, self._around
        if checkpoint is None:
            return None
        allocation = state.allocations[state.machines[attempt.machines[0]].allocation]
        life = around.life(allocation.market, allocation.bid, len(attempt.machines))
        second = SECOND * around.provider.speed
        return Keeping(
            checkpoint.path,
            None if checkpoint.every is None else checkpoint.every / second,
            life / second if isfinite(life) else None,
            around.cost / second,
            LONGEST / second,
        )

    # -- what becomes of it -------------------------------------------------------------------------------------------

    def _moved(self, state: RunState, found: Step, now: int) -> Iterator[ev.Event]:
        """The attempt that begins or ends now, and what that says of the time of its machines."""
        work = state.work
        if found.begin:
            number = work.number + 1
            yield ev.WorkBegan(number, found.begin, _port(f"{self._around.run}-{number}"))
            ready = tuple(ev.Moment(machine, now) for machine in found.begin)
            yield ev.Progressed(number, None, 0, ready=ready)
        elif found.stop or found.done:
            attempt = work.attempt
            assert attempt is not None
            if found.stop:
                yield ev.WorkStopped(attempt.attempt, found.stop, found.moved)
            left = tuple(ev.Moment(machine, now) for machine in attempt.machines)
            again = (ev.Stretch(work.since, min(work.since + work.lost, now)),) if work.lost else ()
            yield ev.Progressed(attempt.attempt, None, 0, left=left, redone=again)

    def _outcome(self, state: RunState, found: Step, unprepared: Sequence[ev.SetupFailed]) -> tuple[str | None, str]:
        if state.work.setups_failed + len(unprepared) >= SETUPS and unprepared:
            last = unprepared[-1]
            return FAILED, f"setup failed on {SETUPS} machines, last with status {last.code}: {last.tail}"
        if found.done:
            if self._command.checkpoint is not None:
                note_finished(Path(self._command.checkpoint.path), self._around.run)
            return DONE, "the command has ended"
        if found.moved and state.work.moves + 1 >= MOVES:
            return FAILED, f"the command has ended to be moved {MOVES} times in a row, and nobody had asked it to"
        if found.failed is None:
            self._failing_since = None
        elif self._is_its_own_fault():
            return FAILED, f"the command ended with {self._how(found.failed)}"
        return None, ""

    def _is_its_own_fault(self) -> bool:
        """A node of a gang may end badly because a mate was taken, which is known a moment later."""
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        return self._shape.nodes == 1 or time.monotonic() - self._failing_since > MATES_SECONDS

    def _how(self, ended: Ended) -> str:
        return f"status {ended.code} on {ended.machine}; spotctl logs {self._spec.name} shows what it said"

    def _tail(self, machine: str) -> str:
        provider = self._around.provider
        if not isinstance(provider, KeepsOutput):
            return f"spotctl logs {self._spec.name} shows what it said"
        try:
            lines = provider.output(machine).decode(errors="replace").splitlines()[-3:]
        except ProviderError:
            return "what it said is gone"
        return " | ".join(line.strip() for line in lines if line.strip())[-300:] or "it said nothing"

    def _checkpointed(self, state: RunState) -> Iterator[ev.Checkpointed]:
        """Checkpoints of this run that have come to where they are kept since they were looked for last."""
        checkpoint = self._command.checkpoint
        if checkpoint is None or (time.monotonic() - self._looked_at < LOOK_SECONDS and state.stopping is None):
            return
        self._looked_at = time.monotonic()
        newest = state.work.checkpoint
        known = {0: newest.number} if newest is not None else {}
        for rank in range(self._command.nodes):
            try:
                found = latest(Path(checkpoint.path), rank)
            except AgentError:
                # Somebody else's files: the node that is to go on from there will say so.
                continue
            run, _, attempt = ("", "", "") if found is None else found.by.rpartition(".")
            if found is None or run != self._around.run or found.number <= self._numbers.get(rank, known.get(rank, 0)):
                continue
            self._numbers[rank] = found.number
            yield ev.Checkpointed(int(attempt), rank, found.number, found.size, found.seconds, found.every)


def _port(name: str) -> int:
    """A port for the first node, the same for who asks again unless somebody has taken it on this computer."""
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big") % 10_000
    for offset in range(100):
        port = 20_000 + (first + offset) % 10_000
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return 20_000 + first
