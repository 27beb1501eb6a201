"""What the nodes of a command do next: they start together, are stopped together, and move together. Pure.

A machine is prepared, waits for its mates, runs the command, and rests again when the command has been stopped there.
What it was told last is known by the name of its payload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotctl.agent.iterator import SAVED_AND_ENDED
from spotctl.machines.base import Machine
from spotctl.runlog.state import Held, RunState

PREPARE = "prepare"


def run_name(attempt: int) -> str:
    """Of the payload that is the command."""
    return f"run-{attempt}"


def rest_name(attempt: int) -> str:
    """Of the payload that takes its place when the attempt is stopped."""
    return f"rest-{attempt}"


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes, whether machines are prepared first, and how long an incomplete gang is kept waiting."""

    nodes: int
    prepares: bool
    pause: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A node's machine, and the status with which what it did has ended."""

    machine: str
    code: int


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done: an attempt begun on machines or stopped for a reason, machines told to run or to rest.

    `moved` says that the attempt is stopped because the program wants to be.

    `unprepared` are machines whose setup has failed, `failed` is a node whose command has, `done` says that all have
    ended well; `useless` are machines that nothing is to be done with.
    """

    begin: tuple[str, ...] = ()
    stop: str = ""
    moved: bool = False
    run: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    unprepared: tuple[Ended, ...] = ()
    failed: Ended | None = None
    done: bool = False
    useless: tuple[str, ...] = ()


def step(state: RunState, machines: Sequence[Machine], shape: Shape, now: int) -> Step:
    """The next step, from what the log tells and what the provider shows."""
    here = {machine.id: machine for machine in machines}
    return _running(state, here) if state.work.runs else _gathering(state, here, shape, now)


def _running(state: RunState, here: Mapping[str, Machine]) -> Step:
    attempt = state.work.attempt
    assert attempt is not None
    gone = [f"{held.id} {why}" for held in map(state.machines.__getitem__, attempt.machines) if (why := _leaves(held))]
    if gone:
        return Step(stop="; ".join(gone))
    name = run_name(attempt.attempt)
    idle = tuple(one for one in attempt.machines if one in here and here[one].work != name)
    codes = {one: here[one].exit_code for one in attempt.machines if one in here and one not in idle}
    moved = [one for one, code in codes.items() if code == SAVED_AND_ENDED]
    if moved:
        return Step(stop=f"{', '.join(moved)} asked to be moved", moved=True, useless=tuple(moved))
    failed = next((Ended(one, code) for one, code in codes.items() if code), None)
    done = len(codes) == len(attempt.machines) and all(code == 0 for code in codes.values())
    return Step(run=idle, failed=failed, done=done, useless=_surplus(state, attempt.machines))


def _surplus(state: RunState, members: Sequence[str]) -> tuple[str, ...]:
    """Machines that nobody needs: those beside a gang of which none is about to leave."""
    if any(state.allocations[state.machines[one].allocation].leaves_at is not None for one in members):
        return ()
    return tuple(held.id for held in _nodes(state) if held.id not in members)


def _leaves(held: Held) -> str:
    """Why a machine can no longer be counted on."""
    if held.ended is not None:
        return "was taken away" if held.end_reason == "evicted" else f"is gone: {held.end_reason}"
    if held.warned_until is not None:
        return "will be taken away"
    return "is given back" if held.returning else ""


def _gathering(state: RunState, here: Mapping[str, Machine], shape: Shape, now: int) -> Step:
    nodes = [held for held in _nodes(state) if held.id in here]
    unprepared = tuple(
        Ended(held.id, code)
        for held in nodes
        if here[held.id].work == PREPARE and (code := here[held.id].exit_code) not in (None, 0)
    )
    broken = {one.machine for one in unprepared}
    name = run_name(state.work.number)
    rest = tuple(one.id for one in nodes if here[one.id].work == name and here[one.id].exit_code is None)
    ready = [held.id for held in nodes if held.running and _is_free(here[held.id], shape)]
    if not _still_run(state, here) and len(ready) >= shape.nodes:
        return Step(begin=tuple(ready[: shape.nodes]), unprepared=unprepared)
    waiting = tuple(one.id for one in nodes if one.id not in broken)
    late = 0 < len(waiting) < shape.nodes and not state.open and now - _since(state, waiting) > shape.pause
    return Step(rest=rest, unprepared=unprepared, useless=(*broken, *(waiting if late else ())))


def _nodes(state: RunState) -> list[Held]:
    """Machines to count on, in the order in which they were bought."""
    found = [
        held
        for held in state.alive
        if not _leaves(held)
        and not state.allocations[held.allocation].reliable
        and state.allocations[held.allocation].leaves_at is None
    ]
    return sorted(found, key=lambda held: (held.allocation, held.id))


def _is_free(machine: Machine, shape: Shape) -> bool:
    """Whether a machine is prepared and does nothing."""
    if not machine.work:
        return not shape.prepares
    return machine.exit_code == 0 if machine.work == PREPARE else machine.exit_code is not None


def _still_run(state: RunState, here: Mapping[str, Machine]) -> bool:
    """Whether nodes of the attempt that was stopped may still save: nobody is to go on before from older files."""
    attempt = state.work.attempt
    if attempt is None:
        return False
    working = (run_name(attempt.attempt), rest_name(attempt.attempt))
    alive = [one for one in attempt.machines if state.machines[one].alive]
    return any(one not in here or (here[one].work in working and here[one].exit_code is None) for one in alive)


def _since(state: RunState, waiting: Sequence[str]) -> int:
    """Since when nothing has come to an incomplete gang."""
    return max(state.work.stopped_at, *(state.machines[one].ran or state.machines[one].started for one in waiting))
