"""The loop that runs a job on a fleet: it listens to the controller, applies faults and replaces
what ended.

`CrashGuard` says whether processes that end by themselves should still be started again.
"""

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count

from agileml.engines.base import ControllerLink, FleetEvent, Gone, Joined, MachineFleet
from agileml.engines.chaos import Evict, Join, KillController, RunningMachine, Script
from agileml.engines.interrupts import until_done
from agileml.errors import JobFailed, Unrecoverable
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Warned
from agileml.runtime.node_process import NOT_ADMITTED, UNREACHABLE
from agileml.runtime.output import Output, Printed
from agileml.runtime.results import Result

TURN_SECONDS = 0.02
"""The longest wait for the controller before the fleet's events are looked at again."""

LEAVE_SECONDS = 2.0
"""Time for nodes to leave by themselves when the job is done."""

FAILED_SECONDS = 30.0
"""Like the above, for a job that has failed: the last output of the nodes says why. Also the time
for its model."""

INTERRUPTED = (
    "interrupted: ending with the last stable model; Ctrl-C again ends at once, without one"
)


class JobLoop:
    """Runs one job. `script` injects faults.

    With `replaces`, the loop keeps up the number of reliable machines, or one machine of a job
    without reliable ones, and a job without machines has failed. Without, the caller manages the
    machines, and only the controller is restarted.
    """

    def __init__(
        self,
        fleet: MachineFleet,
        link: ControllerLink,
        script: Script,
        output: Output,
        *,
        replaces: bool = True,
        least: int = 1,
    ) -> None:
        """A job without reliable machines ends with its last stable model if fewer than `least`
        stay.
        """
        self._fleet = fleet
        self._link = link
        self._script = script
        self._output = output
        self._replaces = replaces
        self._least = least
        self._machines: dict[str, RunningMachine] = {}
        self._stopping: set[str] = set()
        self._present: tuple[RunningMachine, ...] = ()
        """Machines that the script can choose from; kept, since a simulation asks after every
        message."""
        self._numbers = count()
        self._has_reliable = True
        self._crashes = CrashGuard()
        self._left_at_end: list[bool] = []
        """For each node that left because the job is over, whether it was reliable."""
        self._last_failure = ""
        self._failure = ""
        """Why the job is to end before its last clock."""
        self._model_until = 0.0

    def run(self, reliable: int, transient: int, earlier: Sequence[str] = ()) -> Result:
        """Runs the job from its start to its end; raises an AgileMLError if it cannot go on.

        `earlier` are the nodes of a process that has begun the job; they are gone, and no other
        gets their names.
        """
        self.begin(reliable, transient, earlier)
        try:
            result, interrupted = until_done(lambda: self.turn(TURN_SECONDS), self.stop)
        except JobFailed:
            # The nodes have been told; what they printed last may say more.
            self._let_nodes_leave(FAILED_SECONDS)
            raise

        if self._failure and not result.clock:
            # The last stable version was lost with its nodes: there is no model but the initial
            # one.
            raise Unrecoverable(self._failure)

        self._let_nodes_leave(LEAVE_SECONDS)
        return replace(result, interrupted=interrupted, failure=self._failure)

    def begin(self, reliable: int, transient: int, earlier: Sequence[str] = ()) -> None:
        """Starts the controller and the first machines."""
        self._crashes.nodes = reliable + transient
        self._has_reliable = bool(reliable)
        self._numbers = count(1 + max((int(name[1:]) for name in earlier), default=-1))
        self._fleet.start_controller()
        for name in earlier:
            self._link.lose(name)
        self._add(Join(reliable, reliable=True))
        self._add(Join(transient))

    def stop(self) -> None:
        """Ends the job with its last stable model."""
        self._output(Printed("job", INTERRUPTED))
        self._link.stop()

    def turn(self, longest: float) -> Result | None:
        """One turn of the loop, of about `longest` seconds at most; the result once the job is
        done.
        """
        for _ in self._link.listen(longest):
            self._apply_script()
            if self._link.result is None:
                # Several clocks may arrive at once: what a fault does to the fleet must not wait
                # for the last of them.
                self.handle_events()

        self._crashes.advance(self._link.last_clock, self._link.progress)
        if self._link.result is None:
            self.handle_events()
            self._apply_script()

        if self._failure and self._link.result is None and self._fleet.seconds > self._model_until:
            raise Unrecoverable(self._failure)
        return self._link.result

    def handle_events(self) -> None:
        """Reacts to what happened to the fleet. Raises Unrecoverable if processes fail again and
        again.
        """
        # A machine that is started in place of another is reported in the next round.
        while events := self._fleet.events():
            for event in events:
                self._handle(event)
            self._list_present()

        able = any(
            machine.reliable or not self._has_reliable for machine in self._machines.values()
        )
        if self._replaces and not self._left_at_end and not able:
            what = "reliable machine" if self._machines else "machine"
            why = self._last_failure or "all were evicted"
            raise Unrecoverable(f"no {what} is left, and none will come; {why}")

        staying = sum(not machine.warned for machine in self._machines.values())
        # A single machine would be replaced.
        over = bool(self._left_at_end or self._failure)
        if self._replaces and not self._has_reliable and not over and staying < self._least > 1:
            why = self._last_failure or "the others were evicted"
            at = self._link.last_clock + 1
            least = self._least
            self._give_up(
                f"{staying} nodes are left in update {at}, and the model needs at least {least} "
                f"({why})"
            )

    # -- faults that are injected ------------------------------------------------------------------

    def _apply_script(self) -> None:
        if self._link.result is None:
            for act in self._script.due(self._link.last_clock, self._fleet.seconds, self._present):
                match act:
                    case Evict(seconds=None):
                        self._stopping.update(act.names)
                        self._stop(act.names)
                        self._list_present()
                    case Evict():
                        self._stop(act.names, act.seconds)
                    case Join():
                        self._add(act)
                    case KillController():
                        self._fleet.stop(CONTROLLER)

    def _stop(self, names: Sequence[str], notice: float | None = None) -> None:
        for name in names:
            self._fleet.stop(name, notice)

    def _add(self, join: Join) -> None:
        for _ in range(join.count):
            self._fleet.start_node(
                f"{'r' if join.reliable else 't'}{next(self._numbers)}", reliable=join.reliable
            )

    # -- what happens to the fleet -----------------------------------------------------------------

    def _handle(self, event: FleetEvent) -> None:
        match event:
            case Joined():
                self._machines[event.name] = RunningMachine(
                    event.name, event.reliable, warned=False
                )
            case Warned():
                if event.node in self._machines:
                    self._machines[event.node] = replace(self._machines[event.node], warned=True)
                self._link.warn(event.node, event.seconds)
            case Gone(name=name) if name == CONTROLLER:
                self._count_restart(event)
                self._fleet.start_controller()
                left = self._left_at_end
                self._left_at_end = []
                if self._replaces:
                    again = sum(left) if self._has_reliable else len(left)
                    self._add(Join(again, reliable=self._has_reliable))
            case Gone():
                self._stopping.discard(event.name)
                self._lose(event, self._machines.pop(event.name, None))

    def _list_present(self) -> None:
        self._present = tuple(
            machine for name, machine in self._machines.items() if name not in self._stopping
        )

    def _lose(self, gone: Gone, machine: RunningMachine | None) -> None:
        reliable = machine is not None and machine.reliable
        warned = machine is not None and machine.warned
        needed = reliable or not (self._has_reliable or self._machines)
        if gone.status is not None:
            self._last_failure = f"{gone.name} {gone.how}"
        self._report_failure(gone)

        if gone.status is not None and (warned or gone.status == NOT_ADMITTED):
            # The node left as it was told to. A refused node is not replaced: the next one would be
            # refused as well.
            self._link.forget(gone.name)
            replace_it = warned and needed
        elif gone.status == 0:
            # The job is over, and its model is on the way, unless the controller is lost first.
            self._left_at_end.append(reliable)
            replace_it = False
        else:
            # A transient machine that was taken away stays away; one that failed is started again.
            replace_it = needed or (bool(gone.status) and not self._failure)
            if replace_it:
                self._count_restart(gone)
            self._link.lose(gone.name)

        if replace_it and self._replaces:
            self._add(Join(1, reliable=reliable))

    def _report_failure(self, gone: Gone) -> None:
        if gone.status and gone.status != NOT_ADMITTED:
            self._output(Printed(gone.name, gone.how))

    def _count_restart(self, gone: Gone) -> None:
        """A process that failed will be started again, but not for ever. One that was taken away
        does not count.
        """
        if gone.status is None or self._failure:
            return
        why = self._crashes.add(gone, self._machines)
        if why:
            why = f"{gone.name} is {why}: it {gone.how}"
            if gone.name == CONTROLLER or not self._replaces:
                raise Unrecoverable(why)
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        """Ends the job with its last stable model. Raises Unrecoverable if there is none, or it
        cannot be fetched.
        """
        if not self._link.last_clock:
            raise Unrecoverable(why)
        self._failure = why
        self._model_until = self._fleet.seconds + FAILED_SECONDS
        self._link.stop()

    def _let_nodes_leave(self, longest: float) -> None:
        until = self._fleet.seconds + longest
        while self._machines and self._fleet.seconds < until:
            for _ in self._link.listen(TURN_SECONDS):
                pass
            for event in self._fleet.events():
                if isinstance(event, Gone):
                    self._machines.pop(event.name, None)
                    self._report_failure(event)

        # What the nodes printed at their end has arrived at the controller by now.
        self._link.settle(longest)


MAX_IN_A_ROW = 5
"""Processes that may end one after another without any work reported in between."""

MAX_FROM_OUTSIDE = 30
"""Processes that others may end one after another without any work reported in between: they may
have been fine."""

MAX_IN_ONE_CLOCK = 100
"""Processes that may end while the job finishes no new clock: what fails in every attempt at a
clock ends there."""


_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


@dataclass(slots=True)
class CrashGuard:
    """Counts processes that failed. What counts is work, not time: a job may lose processes faster
    than it finishes clocks, and goes on as long as its workers report more work, up to a limit.

    The guard gives up when a process that was started after another had failed fails in the same
    way before a new clock is finished: another attempt would not change that. Processes that ran
    side by side may have failed together for a passing reason.
    """

    nodes: int = 0
    """Each of them may fail once, also in a job of more nodes than the limits say."""
    in_a_row: int = 0
    from_outside: int = 0
    """Those in a row that a signal of others has ended."""
    in_one_clock: int = 0
    _clock: int = 0
    _progress: int = 0
    _kind: str = ""
    _then: frozenset[str] = frozenset()

    def advance(self, clock: int, progress: int) -> None:
        """`clock` is the last finished one; `progress` grows with the work that workers have
        reported.
        """
        if clock > self._clock:
            self.in_one_clock = 0
            self._kind = ""
        if progress > self._progress or clock > self._clock:
            self.in_a_row = self.from_outside = 0
        self._clock = clock
        self._progress = progress

    def add(self, failed: Gone, running: Collection[str]) -> str:
        """Counts one more process, next to which others ran; why none should be started any more,
        or nothing.
        """
        # A process that was ended by others may have been fine.
        ended_by_others = not failed.output and failed.status in _FROM_OUTSIDE
        self.from_outside += ended_by_others
        self.in_a_row += not ended_by_others
        self.in_one_clock += 1
        is_repeated = False
        # Equal for failures that are alike except for numbers in their output; empty if that is
        # unknown, as it is of a process that did not reach the controller.
        kind = ""
        if failed.status not in (None, UNREACHABLE) and not ended_by_others:
            kind = f"{failed.status} {_NUMBER.sub('#', failed.output)}"
        if kind and kind == self._kind:
            is_repeated = failed.name not in self._then
        else:
            self._kind = kind
            self._then = frozenset((*running, failed.name))

        if is_repeated:
            return (
                f"the last of {self.in_one_clock} processes that ended: its replacement failed in "
                "the same way"
            )
        if self.in_a_row > max(MAX_IN_A_ROW, self.nodes):
            return (
                f"the last of {self.in_a_row} processes that ended without any work done in between"
            )
        if self.from_outside > max(MAX_FROM_OUTSIDE, self.nodes):
            return (
                f"the last of {self.from_outside} processes that a signal ended without any work "
                "done in between"
            )
        if self.in_one_clock > max(MAX_IN_ONE_CLOCK, self.nodes):
            return (
                f"the last of {self.in_one_clock} processes that ended before clock "
                f"{self._clock + 1} was finished"
            )

        return ""
