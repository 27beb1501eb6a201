"""The next step of a command's nodes, which start, stop and relocate as a group. Pure.

A machine is prepared, waits for the other nodes, runs the command, and rests once the command was
stopped there. The name of the payload says what the machine was last assigned.

With a range of nodes, an attempt that loses machines is followed at once by an attempt on the
remaining machines, as long as these are enough. Machines that come later wait until growing is
worth a restart. If a new attempt needs its checkpoint in another region, the relocation is an
amount of data sent, its cost, and the time it takes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from bidbrain.strategies.base import SavedState
from pricing_data.list_prices import ListPrices, Location, egress
from pricing_data.units import NANOS_PER_DOLLAR, counted
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.clouds.provider import Machine, MachineState
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec
from spotctl.log import events as ev
from spotctl.log.state import EVICTED, Held, RunState
from spotctl.planning.facts import transfer_time
from spotctl.planning.values import GB

PREPARE = "prepare"

SETUP = "setup"

_DEFAULT_RETRIES = {SETUP: 1, str(SAVED_AND_ENDED): 4}
"""A setup that fails on one machine may be the machine's fault, on two it is not. Exiting to be
moved is no failure unless a command does so again and again."""

_GIB = 2**30


def run_name(attempt: int) -> str:
    """The name of the payload that runs the command."""
    return f"run-{attempt}"


def rest_name(attempt: int) -> str:
    """The name of the payload that replaces the command when the attempt is stopped."""
    return f"rest-{attempt}"


@dataclass(frozen=True, slots=True)
class GangShape:
    """The number of nodes, whether machines need a setup, and the time that an incomplete gang
    waits (`pause`).

    A gang that could start waits as long for more machines that are on their way. `restart` is how
    long a gang stands still when it grows. Times are in microseconds. `free` says since when
    machines have been able to begin an attempt.
    """

    least: int
    most: int
    prepares: bool
    pause: int
    restart: int = 0
    free: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GangStep:
    """The action to take now.

    `begin` names the machines of a new attempt; `stop` is the reason to stop the current one, and
    `moved` says that the program asked to be moved. Machines in `run` are assigned the command,
    those in `rest` nothing. `unprepared` are machines whose setup failed, each with its exit
    status, `failed` is a node whose command failed, with that of the command. `done` says that all
    nodes exited with status 0. `idle` machines are of no more use.
    """

    begin: tuple[str, ...] = ()
    stop: str = ""
    moved: bool = False
    run: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    unprepared: Mapping[str, int] = field(default_factory=dict)
    failed: tuple[str, int] | None = None
    done: bool = False
    idle: tuple[str, ...] = ()


def free_since(machines: Sequence[Machine], shape: GangShape, now: int) -> dict[str, int]:
    """Since when each machine has been able to begin an attempt: a setup takes as long as it
    takes."""
    booted = (machine for machine in machines if machine.state is not MachineState.STARTING)
    return {
        machine.id: shape.free.get(machine.id, now)
        for machine in booted
        if _is_free(machine, shape)
    }


def next_step(state: RunState, machines: Sequence[Machine], shape: GangShape, now: int) -> GangStep:
    """The next step, from the log and the provider's list of machines."""
    # What a machine runs is unknown while its agent does not answer.
    listed = {
        machine.id: machine for machine in machines if machine.state is not MachineState.STARTING
    }
    if state.work.runs:
        return _running(state, listed, shape, now)

    # The gang is incomplete: its nodes are prepared, and wait for others.
    nodes = [held for held in _nodes(state) if held.id in listed]
    unprepared = dict[str, int]()
    rest = list[str]()
    name = run_name(state.work.number)
    for node in nodes:
        machine = listed[node.id]
        if machine.work == PREPARE and machine.exit_code not in (None, 0):
            unprepared[node.id] = machine.exit_code
        if machine.work == name and machine.exit_code is None:
            rest.append(node.id)

    ready = _ready(nodes, listed, shape)
    waiting = [node for node in nodes if node.id not in unprepared]
    alive = [node for node in _nodes(state) if node.id not in unprepared]

    # An attempt begins with the machines that are ready: at once if enough remain of the last one.
    enough = len(ready) >= shape.most
    if shape.least <= len(ready) < shape.most:
        before = () if state.work.attempt is None else state.work.attempt.machines
        remain = sum(node.id in before for node in ready)
        enough = remain >= shape.least or not _others_come(state, ready, alive, shape, now)

    if enough and not _still_saving(state, listed):
        begin = tuple(node.id for node in ready[: shape.most])
        return GangStep(begin=begin, unprepared=unprepared)

    idle = list(unprepared)
    if 0 < len(waiting) < shape.least and not state.open:
        waited = now - _since(state, waiting, shape)
        idle += [node.id for node in waiting if waited > shape.pause]
    return GangStep(rest=tuple(rest), unprepared=unprepared, idle=tuple(idle))


def _running(
    state: RunState, listed: Mapping[str, Machine], shape: GangShape, now: int
) -> GangStep:
    attempt = state.work.attempt
    assert attempt is not None
    name = run_name(attempt.attempt)
    present = [listed[machine] for machine in attempt.machines if machine in listed]
    waiting = tuple(machine.id for machine in present if machine.work != name)
    codes = {machine.id: machine.exit_code for machine in present if machine.work == name}
    done = len(codes) == len(attempt.machines) and all(code == 0 for code in codes.values())
    if done:
        return GangStep(done=True)

    leaving = [
        f"{held.id} {why}"
        for held in map(state.machines.__getitem__, attempt.machines)
        if (why := _why(held))
    ]

    if leaving:
        return GangStep(stop="; ".join(leaving))

    moved = [machine for machine, code in codes.items() if code == SAVED_AND_ENDED]
    if moved:
        return GangStep(stop=f"{', '.join(moved)} requested a move", moved=True, idle=tuple(moved))

    failed = next(((machine, code) for machine, code in codes.items() if code), None)
    if any(state.leaves_at(state.machines[machine]) is not None for machine in attempt.machines):
        # The replacement of the leaving machine may be among the others.
        return GangStep(run=waiting, failed=failed)

    # Machines outside of the gang: those that may join it, and the others, which are of no use.
    others = [held for held in _nodes(state) if held.id not in attempt.machines]
    market = state.allocations[state.machines[attempt.machines[0]].allocation].market
    alike = [held for held in others if state.allocations[held.allocation].market == market]
    joining = alike[: shape.most - len(attempt.machines)]
    surplus = tuple(held.id for held in others if held not in joining)

    if all(code is None for code in codes.values()) and (
        why := _grows(state, joining, listed, shape, now)
    ):
        return GangStep(stop=why)

    return GangStep(run=waiting, failed=failed, idle=surplus)


def _grows(
    state: RunState,
    joining: Sequence[Held],
    listed: Mapping[str, Machine],
    shape: GangShape,
    now: int,
) -> str:
    """Why a running gang restarts with more machines; empty if it does not.

    A gang grows right after a checkpoint: the program is known to be at work, and loses nothing.
    Without a checkpoint, a gang grows once the new machines have waited for as much machine time as
    the restart costs those at work: by then waiting costs as much as growing, and machines that are
    soon evicted again are mostly gone.
    """
    work = state.work
    assert work.attempt is not None
    ready = _ready(joining, listed, shape)
    if not ready or _others_come(state, ready, joining, shape, now):
        return ""

    before = len(work.attempt.machines)
    more = len(ready)
    there = max(_since(state, ready, shape), work.since)
    if work.checkpointed_at > there:
        why = "a checkpoint has just been stored"
    elif (now - there) * more >= shape.restart * before:
        why = "the new ones have waited for as long as the restart costs the others"
    else:
        return ""

    return f"grows from {before} to {counted(before + more, 'node')}: {why}"


def _why(held: Held) -> str:
    """Why a machine can no longer be counted on; empty for a good machine."""
    if held.ended is not None:
        return "was evicted" if held.end_reason == EVICTED else f"is gone: {held.end_reason}"
    if held.warned_until is not None:
        return "will be evicted"
    return "is being returned" if held.returning else ""


def _others_come(
    state: RunState, ready: Sequence[Held], alive: Sequence[Held], shape: GangShape, now: int
) -> bool:
    """Whether more machines are on their way, for which those that are ready wait a while."""
    if not state.open and len(ready) >= len(alive):
        return False
    return now - _since(state, ready, shape) <= shape.pause


def _ready(nodes: Sequence[Held], listed: Mapping[str, Machine], shape: GangShape) -> list[Held]:
    """Machines that can begin an attempt."""
    return [
        node
        for node in nodes
        if node.id in listed and node.running and _is_free(listed[node.id], shape)
    ]


def _nodes(state: RunState) -> list[Held]:
    """Machines to count on, in the order in which they were rented."""
    staying = [
        held
        for held in state.alive
        if not _why(held)
        and not state.allocations[held.allocation].reliable
        and state.leaves_at(held) is None
    ]
    return sorted(staying, key=attrgetter("allocation", "id"))


def _is_free(machine: Machine, shape: GangShape) -> bool:
    """Whether a machine is prepared and runs nothing."""
    if not machine.work:
        return not shape.prepares
    return machine.exit_code == 0 if machine.work == PREPARE else machine.exit_code is not None


def _still_saving(state: RunState, listed: Mapping[str, Machine]) -> bool:
    """Whether nodes of the stopped attempt may still write checkpoints: a new attempt must not miss
    them.
    """
    attempt = state.work.attempt
    if attempt is None:
        return False

    names = (run_name(attempt.attempt), rest_name(attempt.attempt))
    alive = [machine for machine in attempt.machines if state.machines[machine].alive]
    return any(
        machine not in listed
        or (listed[machine].work in names and listed[machine].exit_code is None)
        for machine in alive
    )


def _since(state: RunState, waiting: Sequence[Held], shape: GangShape) -> int:
    """The last time when a machine joined an incomplete gang, or was ready to."""
    return max(
        state.work.stopped_at,
        *(shape.free.get(node.id, node.ran or node.started) for node in waiting),
    )


def node_variables(
    rank: int, nodes: Sequence[str], port: int, *, may_be_several: bool
) -> dict[str, str]:
    """How a node finds the others: their addresses in the order of their ranks, and a port of the
    first one. If there may be several, the variables by which torchrun tells a program of one
    process per node that it is part of a group: a program that finds one of them expects all.
    """
    variables = {
        "SPOTCTL_NODES": str(len(nodes)),
        "SPOTCTL_NODE_RANK": str(rank),
        "SPOTCTL_NODE_ADDRESS": nodes[rank],
        "SPOTCTL_NODE_ADDRESSES": ",".join(nodes),
        "MASTER_ADDR": nodes[0],
        "MASTER_PORT": str(port),
    }
    if may_be_several:
        variables |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(nodes)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
        }
    return variables


def allowed(retries: Mapping[str, int], failure: str | int) -> int:
    """How often a job is tried again after this failure: `setup`, or the status with which the
    command exited.
    """
    return retries.get(str(failure), _DEFAULT_RETRIES.get(str(failure), 0))


def saved_of(state: RunState, spec: JobSpec) -> SavedState | None:
    """The place and the size of a command's checkpoint; the size as declared in the job file, else
    as measured.
    """
    program = spec.program
    attempt = state.work.attempt
    kept = state.work.checkpoint
    if (
        not isinstance(program, Command)
        or program.checkpoint is None
        or attempt is None
        or kept is None
    ):
        return None

    declared = program.checkpoint.size
    market = state.allocations[state.machines[attempt.machines[0]].allocation].market
    parts = 1 if program.nodes.is_range else program.nodes.most
    return SavedState(market, (kept.bytes * parts if declared is None else declared) / GB)


def move_to(
    state: RunState,
    spec: JobSpec,
    machines: Sequence[str],
    now: int,
    lists: Callable[[], ListPrices],
) -> tuple[ev.Sent, int] | None:
    """The data that the old place sends when a new attempt needs the checkpoint elsewhere, and when
    they arrive; None if the checkpoint is there already."""
    saved = saved_of(state, spec)
    attempt = state.work.attempt
    if saved is None or attempt is None:
        return None

    held = [state.machines[machine] for machine in machines]
    origin = Location.of(saved.market)
    target = Location.of(state.allocations[held[0].allocation].market)
    if (origin.cloud, origin.region) == (target.cloud, target.region):
        return None

    # The price is known: the plan uses no market without such a price.
    price = round(egress(origin, target, now, lists()).usd_per_gb * NANOS_PER_DOLLAR * _GIB / GB)
    there_at = max(machine.ran or machine.started for machine in held) + transfer_time(
        saved.gigabytes
    )
    region = f"{target.cloud}/{target.region}"

    return ev.Sent(attempt.machines[0], now, round(saved.gigabytes * GB), price, region), there_at
