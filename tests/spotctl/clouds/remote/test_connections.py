"""How often a connection asks the cloud whether its machine is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from spotctl.clouds.errors import ProviderError, Throttled, Unanswered, Unusable
from spotctl.clouds.remote.connections import (
    LONGEST_LOOK_SECONDS,
    MachineConnection,
    RemoteMachine,
    judged,
)
from spotctl.clouds.remote.home import RemoteHome
from spotctl.clouds.remote.machine_setup import Spreading
from spotctl.clouds.remote.ssh import StepFailed


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("spotctl.clouds.remote.connections.time.monotonic", lambda: self.now)


def connection(folder: Path, gone: Callable[[], bool]) -> MachineConnection:
    machine = RemoteMachine("aws:here:i-1", 0, "127.0.0.1", 22, lambda: "", gone)
    return MachineConnection(machine, 0, RemoteHome(folder), threading.Semaphore(), Spreading())


def test_the_cloud_is_seldom_asked_whether_a_machine_is_gone_that_is_being_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = Clock(monkeypatch), list[float]()

    def gone() -> bool:
        asked.append(clock.now)
        return False

    one = connection(tmp_path, gone)
    while clock.now < 1600.0:
        assert not one.gone()
        clock.now += 0.3
    pauses = [after - before for before, after in pairwise(asked)]
    assert len(asked) < 20
    assert max(pauses) < LONGEST_LOOK_SECONDS + 1.0, "it is asked for as long as it does not answer"


def test_a_cloud_that_does_not_answer_says_nothing_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, answers = Clock(monkeypatch), list[Throttled | bool]([Throttled("slow down"), True])

    def gone() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Throttled):
            raise answer
        return answer

    one = connection(tmp_path, gone)
    assert not one.gone()
    clock.now += LONGEST_LOOK_SECONDS
    assert one.gone()
    assert not answers


FULL, BOOTING, DAMAGED = (
    StepFailed("m: no space left"),
    Unanswered("m: it boots"),
    ProviderError("m: a bug"),
)


@pytest.mark.parametrize(
    ("failures", "final"),
    [
        ([FULL], False),
        ([FULL, FULL], True),
        ([FULL, FULL, FULL], True),
        ([DAMAGED, DAMAGED], True),
        ([FULL, None, FULL], False),
        ([FULL, BOOTING, FULL], False),
        ([BOOTING] * 9, False),
    ],
)
def test_a_step_that_fails_twice_in_a_row_fails_for_good(
    failures: list[ProviderError | None], final: bool
) -> None:
    last: ProviderError | None = None
    for failure in failures:
        last = judged(failure, last)
    assert isinstance(last, Unusable) is final
    assert last is not None
    assert str(failures[-1]) in str(last)
