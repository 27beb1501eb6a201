"""`resuming`: a loop that is interrupted anywhere ends in the state of one that never was."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import SGDClassifier  # type: ignore[import-untyped]

from spotctl.agent.lease.job_lease import LeaseEnded
from spotctl.agent.lease.lease_files import LeaseGrantor, LeaseHolder
from spotctl.integrations.loops import resuming


class Interrupted(Exception):
    """The end of a machine that saves nothing more."""


class Weights:
    """What Keras has."""

    def __init__(self) -> None:
        self.weights = [0.0]

    def get_weights(self) -> list[float]:
        return list(self.weights)

    def set_weights(self, weights: list[float]) -> None:
        self.weights = list(weights)


def objects() -> tuple[Any, ...]:
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, optimizer, SGDClassifier(random_state=0), Weights(), {"best": 0.0}, [0]


def step(number: int, states: tuple[Any, ...]) -> None:
    net, optimizer, classifier, weights, best, seen = states
    optimizer.zero_grad()
    net(torch.rand(4, 2)).sum().backward()
    optimizer.step()
    classifier.partial_fit(np.random.rand(4, 2), [0, 1, 0, 1], classes=[0, 1])
    weights.weights = [weights.weights[0] + random.random()]
    best["best"] += number
    seen.append(number)


def values(states: tuple[Any, ...]) -> list[Any]:
    net, _, classifier, weights, best, seen = states
    return [net.weight.tolist(), classifier.coef_.tolist(), weights.weights, best, seen]


def trained(folder: Path, stop: int | None = None) -> list[Any]:
    states = objects()
    for number in resuming(range(6), *states, folder=folder):
        if number == stop:
            raise Interrupted
        step(number, states)
    return values(states)


@pytest.mark.parametrize("stops", [(0,), (1,), (3, 3, 4), (5,)])
def test_a_loop_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: tuple[int, ...]
) -> None:
    monkeypatch.setattr("spotctl.integrations.loops._SHARE", float("inf"))
    straight = trained(tmp_path / "straight")
    for stop in stops:
        with pytest.raises(Interrupted):
            trained(tmp_path / "kept", stop)
    assert trained(tmp_path / "kept") == straight
    assert trained(tmp_path / "kept") == straight, "a loop that is over does nothing"


_IMPORTS = """
from pathlib import Path

import torch

from spotctl.integrations.loops import resuming

"""
_TRAINING = """\
net, best = torch.nn.Linear(2, 1), 0
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in resuming(range({steps}), net, optimizer, folder=Path("kept")):
    loss = net(torch.rand(4, 2)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = max(best, step)
    handle = open(__file__)
print("final", loss.item(), best, step)
"""
"""As people write it: what follows the loop uses names that the loop gives, beside one that cannot
be kept."""

_MODULE = _IMPORTS + _TRAINING
_FUNCTION = f"{_IMPORTS}def main():\n{indent(_TRAINING, '    ')}\n\nmain()\n"


@pytest.mark.parametrize("text", [_MODULE, _FUNCTION], ids=["module", "function"])
def test_what_follows_a_finished_loop_finds_the_names_that_the_loop_gave(
    tmp_path: Path, text: str
) -> None:
    def printed(steps: int) -> str:
        (tmp_path / "script.py").write_text(text.format(steps=steps))
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = printed(3)
    assert first.endswith(" 2 2\n")
    assert printed(3) == first
    assert printed(3) == first, "the last save stays"
    longer = printed(5)
    assert longer.endswith(" 4 4\n"), "a loop that was made longer goes on"
    assert printed(5) == longer


def _warned_at(warned: int, done: list[int], folder: Path) -> None:
    for number in resuming(range(9), done, folder=folder):
        done.append(number)
        if number == warned:
            signal.raise_signal(signal.SIGTERM)


def test_a_warning_ends_the_loop_after_a_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LeaseGrantor(tmp_path / "lease").begin(1000.0)
    monkeypatch.setattr(LeaseHolder, "of", lambda: LeaseHolder(tmp_path / "lease"))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    done: list[int] = []
    try:
        with pytest.raises(LeaseEnded):
            _warned_at(3, done, tmp_path / "kept")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done == [0, 1, 2, 3]
    assert next(iter(resuming(range(9), done, folder=tmp_path / "kept"))) == 4


def test_saves_take_a_small_part_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(10_000_000))
    monkeypatch.setattr("spotctl.integrations.loops.time.monotonic", lambda: float(next(now)))
    saves = 0

    def counted() -> Iterator[int]:
        nonlocal saves
        names = set[str]()
        for number in range(400):
            names |= {path.name for path in (tmp_path / "kept").glob("loop-*")}
            yield number
        saves = len(names)

    list(resuming(counted(), [], folder=tmp_path / "kept"))
    assert 1 < saves < 40


def test_only_the_first_rank_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert list(resuming(range(3), [], folder=tmp_path / "kept")) == [0, 1, 2]
    assert not (tmp_path / "kept").exists()


def test_a_value_that_cannot_be_restored_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"0.5 cannot be restored in place; pass a dict"):
        list(resuming(range(3), 0.5, folder=tmp_path))
