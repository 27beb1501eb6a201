"""Data parallelism predicted from one worker and four."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.pipeline import scaling_errors
from bench.pipeline_scaling import gradient_seconds, step_seconds_on


def test_a_family_shares_the_time_of_its_gradients() -> None:
    """x = 4 seconds: a step on 4 workers takes 2 * 3/4 * 4 = 6 seconds more."""
    assert gradient_seconds([(1.0, 7.0, 4), (10.0, 16.0, 4)]) == 4.0
    assert step_seconds_on(2, 1.0, 4.0) == 5.0
    assert step_seconds_on(1, 1.0, 4.0) == 1.0
    assert gradient_seconds([(2.0, 1.0, 4)]) == 0.0


def test_errors_on_measured_jobs(shared_data: Path) -> None:
    lines = {
        line.split()[0]: line
        for line in scaling_errors(shared_data / "gavel" / "throughputs_isolated.csv")
    }
    errors = {gpu: float(line.split("estimate")[1].split("%")[0]) for gpu, line in lines.items()}
    assert errors["v100"] == pytest.approx(12, abs=1)
    assert errors["p100"] == pytest.approx(11, abs=1)
    assert errors["k80"] == pytest.approx(6, abs=1)
