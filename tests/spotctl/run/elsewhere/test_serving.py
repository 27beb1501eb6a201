"""A runner shows that it is alive, whatever else fails meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from agileml.runtime.blob_store import UnreadableBlob
from spotctl.agent.errors import AgentError
from spotctl.log.errors import LogFailed
from spotctl.run.elsewhere import serving
from spotctl.run.elsewhere.errors import Superseded
from spotctl.run.elsewhere.fence import Fence
from spotctl.run.elsewhere.keys import Admission
from spotctl.run.elsewhere.log_copy import LogCopier


class Part:
    """A fence, a copier or an admission whose turn fails; `turns` counts."""

    def __init__(self, fails: Exception | None = None, then: Callable[[], None] = lambda: None) -> None:
        self.turns, self._fails, self._then = 0, fails, then

    def renew(self) -> None:
        self.turns += 1
        self._then()
        if self._fails is not None:
            raise self._fails

    copy = turn = renew


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "COPY_SECONDS", 0.0)
    monkeypatch.setattr(serving, "BEAT_SECONDS", 0.0)


def attended(fence: Part, copier: Part, admission: Part, stop: threading.Event) -> None:
    serving.attend(cast("Fence", fence), cast("LogCopier", copier), cast("Admission", admission), stop)


@pytest.mark.parametrize(
    "failure", [LogFailed("the log is locked"), OSError("no answer"), UnreadableBlob("damaged"), AgentError("no token")]
)
def test_a_failure_beside_it_does_not_silence_a_runner(failure: Exception) -> None:
    stop = threading.Event()
    fence = Part(then=lambda: stop.set() if fence.turns >= 3 else None)
    copier, admission = Part(failure), Part(failure)
    attended(fence, copier, admission, stop)
    assert (fence.turns, copier.turns, admission.turns) == (3, 3, 3)


def test_a_runner_that_was_replaced_does_nothing_more() -> None:
    fence, copier = Part(Superseded("another took over")), Part()
    attended(fence, copier, Part(), threading.Event())
    assert (fence.turns, copier.turns) == (1, 0)
