"""The runner dies at any point, and another resumes: no machine is bought twice, none is
forgotten."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.spotctl.run.kills import TAKEN, deaths_of, points, survive
from tests.spotctl.run.worlds import CHANGING, Death, life

SAMPLE = 16


@pytest.mark.parametrize("at", random.Random(7).sample(range(len(points())), SAMPLE))
def test_a_run_survives_its_runners_death(tmp_path: Path, at: int) -> None:
    survive(tmp_path, [at])


@pytest.mark.parametrize("seed", range(6))
def test_runners_die_again_while_they_resume(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, deaths_of(seed))


def test_the_matrix_meets_every_kind_of_point() -> None:
    met = set(points())
    for where in (
        "write RentIntended",
        "write Rented",
        "write StopRequested",
        "write RunEnded",
        *CHANGING,
    ):
        assert {f"before {where}", f"after {where}"} <= met


def test_two_evictions_are_part_of_the_run(tmp_path: Path) -> None:
    undisturbed = life(tmp_path, TAKEN)
    undisturbed.run(Death())
    state = undisturbed.state()
    assert state.evictions == 6
    assert any(held.warned_until is not None for held in state.machines.values())
