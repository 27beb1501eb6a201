"""Speeds that other jobs' speeds tell, on measured throughputs of jobs that were held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bidbrain.gavel.estimator import speeds_by_others
from spotctl.lab.gavel.throughputs_file import read_throughputs

EQUAL = {"v100": 1.0, "p100": 1.0, "k80": 1.0}


@pytest.fixture
def measured(shared_data: Path) -> list[dict[str, float]]:
    """Throughputs of the published kinds of jobs on one worker of each type."""
    throughputs = read_throughputs(shared_data / "gavel" / "simulation_throughputs.json.gz").on(
        tuple(EQUAL)
    )
    alone = [
        row
        for kind, row in zip(throughputs.kinds, throughputs.alone.tolist(), strict=True)
        if kind.scale == 1
    ]
    return [dict(zip(EQUAL, row, strict=True)) for row in alone if min(row) > 0]


def test_speeds_of_held_out_jobs_are_closer_than_expected_ones(
    measured: list[dict[str, float]],
) -> None:
    misses, expected = list[float](), list[float]()
    for number, job in enumerate(measured):
        others = measured[:number] + measured[number + 1 :]
        known = {kind: job[kind] for kind in ("k80", "p100")}
        told = speeds_by_others(known, others, EQUAL)
        assert told is not None
        assert told.jobs == len(others)
        assert told.speeds.keys() == {"v100"}
        assert told.error < told.expected_error
        misses.append(abs(np.log(told.speeds["v100"] / job["v100"])))
        expected.append(abs(np.log(np.median(list(known.values())) / job["v100"])))
    assert np.mean(misses) < 0.5 * np.mean(expected)


def test_too_few_jobs_or_no_better_guesses_tell_nothing(measured: list[dict[str, float]]) -> None:
    known = {"k80": 1.0}
    assert speeds_by_others(known, measured[:3], EQUAL) is None
    assert speeds_by_others(known, [{"k80": 2.0}, {"p100": 1.0}] * 9, EQUAL) is None
    assert speeds_by_others({}, measured, EQUAL) is None
    assert speeds_by_others(EQUAL, measured, EQUAL) is None
    # Jobs that do as expected leave nothing to learn.
    assert (
        speeds_by_others(
            known, [dict.fromkeys(EQUAL, scale) for scale in (1.0, 2.0, 3.0, 4.0)], EQUAL
        )
        is None
    )
    # Nor do jobs of which each is faster on another type.
    opposite = [{"k80": 1.0, "p100": 4.0**sign, "v100": 4.0**-sign} for sign in (1, -1, 1, -1)]
    assert speeds_by_others(known, opposite, EQUAL) is None


def test_a_jobs_unit_of_work_does_not_matter(measured: list[dict[str, float]]) -> None:
    known = {"k80": 3.0}
    scaled = [
        {kind: speed * 10.0**number for kind, speed in job.items()}
        for number, job in enumerate(measured[:9])
    ]
    told, same = (speeds_by_others(known, others, EQUAL) for others in (measured[:9], scaled))
    assert told is not None
    assert same is not None
    assert told.speeds == pytest.approx(same.speeds)
