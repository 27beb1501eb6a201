"""The benchmark of goodput itself, on short cells: with torchft if `SPOTCTL_TORCHFT` names the Python that has it."""

from __future__ import annotations

import os

import pytest

from bench.goodput.__main__ import main

TORCHFT = os.environ.get("SPOTCTL_TORCHFT", "")


@pytest.mark.slow
def test_systems_lose_nodes_and_end_with_the_loss_of_an_undisturbed_training(
    capfd: pytest.CaptureFixture[str],
) -> None:
    systems = ["trainer", "torchrun", *(["torchft-hand-gloo"] if TORCHFT else [])]
    cell = f"19k:kills:{','.join(systems)}"
    assert main(["--torchft", TORCHFT, "--cells", cell, "--seconds", "12"]) == 0
    rows = [line.split(" | ") for line in capfd.readouterr().out.splitlines() if line.startswith("| 19k")]
    assert [row[2] for row in rows] == systems
    for row in rows:
        ended, undisturbed = (float(word.split()[0]) for word in row[7].split(", ", 1))
        assert ended == pytest.approx(undisturbed, abs=0.1)
