"""Nodes that a stranger has taken over: they spoil their own share of the work, and nothing
else."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.agileml.engines.hostile_node import Attacked, betray, talk
from tests.agileml.engines.test_attached import outcome_of
from tests.samples import LONG_RUN

pytestmark = pytest.mark.timeout(600)

MAX_GROWTH_BYTES = 200_000_000


def goes_on_undisturbed(folder: Path, first: int, count: int) -> Counter[str]:
    outcomes, worst, answer, attacked = talk(folder, first, count)
    assert worst < MAX_GROWTH_BYTES
    assert outcome_of(answer) == outcome_of(simulated(attacked))
    assert outcomes.total() == count
    return outcomes


def simulated(attacked: Attacked) -> dict[str, object]:
    """The result of a simulation of the training, in a process that has imported no other user's
    code."""
    words = ("--engine", "sim", "--deterministic", "--json", *attacked.words)
    ended = subprocess.run(
        [sys.executable, "-m", "spotctl", "lab", "train", attacked.trainer, *words],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, object] = json.loads(ended.stdout)
    return answer


@pytest.mark.slow
def test_fifty_attacks_of_strangers_change_nothing(tmp_path: Path) -> None:
    """Each with credentials of its own, on the controller and on other nodes."""
    outcomes = goes_on_undisturbed(tmp_path, 0, 55)
    assert {outcome.partition(":")[0] for outcome in outcomes} >= {
        "messages",
        "names",
        "blobs",
        "flood",
        "raw",
    }
    assert not [
        outcome
        for outcome in outcomes
        if outcome.startswith("messages_to_a_node") and "refused" not in outcome
    ]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("first", range(55, 1055, 100))
def test_a_thousand_attacks_of_strangers_change_nothing(first: int, tmp_path: Path) -> None:
    goes_on_undisturbed(tmp_path, first, 100)


@LONG_RUN
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 6))
def test_turncoats_are_shut_out_or_named(first: int) -> None:
    """Nodes that join as others do, and falsify what they send; nothing of the others' work is
    lost.
    """
    with tempfile.TemporaryDirectory() as folder:
        outcomes, worst, answer, attacked = betray(Path(folder), first, 6)
    assert worst < MAX_GROWTH_BYTES
    assert outcomes["named"] == (answer is None)
    assert honest_losses(attacked) <= outcomes.total()


def honest_losses(attacked: Attacked) -> int:
    """Honest nodes that were given up: of two that accuse each other, none can tell which one
    lies."""
    return sum(
        any(event.startswith(f"{name} lost") for event in attacked.training.events)
        for name in attacked.nodes
    )
