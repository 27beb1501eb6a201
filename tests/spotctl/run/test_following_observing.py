"""What machines wait for is said now and then, until they work."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from spotctl.log.state import RunState
from spotctl.run.following import WAIT_SECONDS, RunObserver, turn_reports

if TYPE_CHECKING:
    import pytest

    from spotctl.files.job.spec import JobSpec
    from spotctl.run.turn.service import Runner


class Watched:
    """A run, some of whose turns are reported with what its machines are waiting for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch, self._lines = monkeypatch, list[str]()
        self._runner = SimpleNamespace(state=RunState(), starting="")
        observer = RunObserver(on_remark=lambda _, line: self._lines.append(line))
        spec = cast("JobSpec", SimpleNamespace(name="job"))
        self._report = turn_reports(spec, cast("Runner", self._runner), observer)

    def line(self, starting: str, now: float) -> str:
        """The line about a turn; empty if there is none."""
        self._runner.starting = starting
        self._lines.clear()
        with self._monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda: now)
            self._report()
        return "".join(self._lines)


def test_a_line_appears_after_a_while_and_again_when_there_is_something_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = Watched(monkeypatch)
    assert not waiting.line("m: booting", 0.0)
    assert (
        waiting.line("m: sending packages (1.0 of 48.0 MiB)", WAIT_SECONDS)
        == "m: sending packages (1.0 of 48.0 MiB)"
    )
    assert not waiting.line("m: sending packages (1.1 of 48.0 MiB)", WAIT_SECONDS + 1)
    assert not waiting.line("m: sending packages (1.0 of 48.0 MiB)", 3 * WAIT_SECONDS)
    assert waiting.line("m: sending packages (9.0 of 48.0 MiB)", 3 * WAIT_SECONDS + 1)


def test_machines_that_work_soon_are_not_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Watched(monkeypatch)
    assert not waiting.line("m: booting", 0.0)
    assert not waiting.line("", 1.0)
    assert not waiting.line("n: booting", WAIT_SECONDS)
