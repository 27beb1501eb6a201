"""Kills callers of the local provider and its links by SIGKILL at every point of a call, and lets
others repeat it.

    python -m tests.spotctl.clouds.killed [EVERY]

The points are the lines of our code and Python's audit events (files, locks, processes). A caller
is forked and kills itself at one of them, at every EVERY-th point of each call. Then another caller
repeats the call, as a resumed run would. The command prints the number of points, and every
violation.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import spotctl.agent
import spotctl.clouds.link
import spotctl.clouds.local
from agileml.runtime import ground
from spotctl.agent.container.payload import Payload
from spotctl.clouds.link import AgentLink
from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from spotctl.clouds.provider import EndReason, MachineRequest, MachineState
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.leaving import kill_all, running
from tests.waiting import eventually

MACHINES = 2
ORDER = MachineRequest(
    "t",
    markets.CALM,
    MACHINES,
    markets.BID,
    markets.CLOSES,
    {"run": "a"},
    Payload("p", ("sleep", "1000")),
)
RENEWED = markets.CLOSES - 1

_OURS = (
    spotctl.agent.__path__[0],
    spotctl.clouds.local.__path__[0],
    spotctl.clouds.link.__file__,
    ground.__file__,
)
_EVENTS = ("open", "os.", "fcntl.", "subprocess.", "shutil.", "tempfile.")


def provider(root: Path) -> LocalProvider:
    return LocalProvider(root, markets.market, LocalSettings(unwarned=0.0))


def ids(root: Path) -> list[str]:
    return [one.id for one in provider(root).list({})]


def links(root: Path) -> list[AgentLink]:
    here = provider(root)
    return [here.link(one) for one in ids(root)]


def renew_all(root: Path) -> None:
    for link in links(root):
        link.renew(RENEWED)


def assign_all(root: Path) -> None:
    for link in links(root):
        link.assign(markets.python("raise SystemExit(3)", "other", grace_seconds=0.0))


@dataclass(frozen=True)
class KilledCall:
    """A call, its precondition, and what must hold once it was repeated."""

    before: Callable[[Path], object]
    call: Callable[[Path], object]
    holds: Callable[[Path], None]


def begun(root: Path) -> None:
    provider(root).begin(markets.BEGIN, 1.0)


def rented(root: Path) -> None:
    begun(root)
    provider(root).create(ORDER)


def one_set_runs(root: Path) -> None:
    """Each machine runs once, with one payload."""
    found = provider(root).list({})
    assert [one.state for one in found] == [MachineState.RUNNING] * MACHINES, found
    # Hypervisors and agents carry the mark of the allocation's folder, a payload that of the
    # machine's own.
    eventually(lambda: len(running(root)) == 3 * MACHINES)
    assert (
        sorted(len(mark.relative_to(root).parts) for _, mark in running(root))
        == [2, 2] * MACHINES + [3] * MACHINES
    )
    assert len({mark for _, mark in running(root)}) == 1 + MACHINES
    assert len(provider(root).resources({})) == MACHINES


def renewed(root: Path) -> None:
    one_set_runs(root)
    assert {link.status().lease_until for link in links(root)} == {RENEWED}


def assigned(root: Path) -> None:
    eventually(lambda: {link.status().exit_code for link in links(root)} == {3})
    assert {link.status().work for link in links(root)} == {"other"}


def none_runs(root: Path) -> None:
    eventually(lambda: {one.state for one in provider(root).list({})} == {MachineState.GONE})
    assert {one.end_reason for one in provider(root).list({})} == {EndReason.RETURNED}
    eventually(lambda: not running(root))
    assert provider(root).resources({}) == ()


def begun_again(root: Path) -> None:
    assert provider(root).now() >= markets.BEGIN + 1
    assert provider(root).speed == 7.0


ACTS = {
    "begin": KilledCall(
        lambda _: None, lambda root: provider(root).begin(markets.BEGIN + 1, 7.0), begun_again
    ),
    "create": KilledCall(begun, lambda root: provider(root).create(ORDER), one_set_runs),
    "renew": KilledCall(rented, renew_all, renewed),
    "assign": KilledCall(rented, assign_all, assigned),
    "terminate": KilledCall(rented, lambda root: provider(root).terminate(ids(root)), none_runs),
    "list": KilledCall(rented, lambda root: provider(root).list({}), one_set_runs),
}


def points_of(act: KilledCall, root: Path) -> int:
    """The number of points of a call."""
    act.before(root)
    counter = _Counter(None)
    with_points(counter, lambda: act.call(root))
    kill_all(root)
    shutil.rmtree(root)
    return counter.count


def kill_at(act: KilledCall, point: int, root: Path) -> bool:
    """Kills a caller at a point and has another repeat the call; False if the call ended before
    that point.
    """
    act.before(root)
    pid = os.fork()
    if pid == 0:
        try:
            with_points(_Counter(point), lambda: act.call(root))
        finally:
            os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    if act is not ACTS["begin"]:
        # A list in between shows all machines of the one request, or none yet.
        assert len(provider(root).list({})) in (0, MACHINES)
    act.call(root)
    act.holds(root)
    kill_all(root)
    shutil.rmtree(root)
    return killed


class _Counter:
    """Counts points, and kills its own process at the fatal one."""

    def __init__(self, fatal: int | None) -> None:
        self.count, self.active, self._fatal = 0, False, fatal

    def met(self) -> None:
        if self.active:
            if self.count == self._fatal:
                self.active = False
                os.kill(os.getpid(), signal.SIGKILL)
            self.count += 1

    def on_event(self, event: str, _: tuple[object, ...]) -> None:
        if event.startswith(_EVENTS):
            self.met()

    # As Python calls it.
    def on_line(self, frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        if event == "line":
            self.met()
        return self.on_line


def with_points(counter: _Counter, call: Callable[[], object]) -> None:
    sys.addaudithook(counter.on_event)
    counter.active = True
    sys.settrace(counter.on_line)
    try:
        call()
    finally:
        sys.settrace(None)
        counter.active = False


def roots() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        while True:
            yield Path(folder) / str(number)
            number += 1


def main(every: int) -> int:
    """Kills at every `every`-th point; returns the number of violations."""
    root, failed, tried = roots(), 0, 0
    for name, act in ACTS.items():
        count = points_of(act, next(root))
        killed = 0
        for point in range(tried % every, count, every):
            where = next(root)
            try:
                killed += kill_at(act, point, where)
            # All that goes wrong is shown, and the next point tried.
            except Exception as error:  # noqa: BLE001
                failed += 1
                say(f"{name}, point {point}: {type(error).__name__}: {error}")
                kill_all(where)
            tried += 1
        say(f"{name}: {count} points, {killed} callers killed")
    say(f"{tried} points tried, {failed} failed")
    return failed


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1) > 0)
