"""The sample of tests that `make test` runs."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.samples import VARIABLE

FILE, FUNCTION = "tests/spotctl/lab/train/test_train_errors.py", "test_a_trainer_that_breaks_the_contract"
"""A function that is marked as `sampled(2)`, and its file."""


def collected(seed: int, variable: str) -> set[str]:
    words = ("-m", "pytest", "-n", "0", "--collect-only", "-q", f"--randomly-seed={seed}", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, *words, FILE],
        env={**os.environ, VARIABLE: variable, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_a_sample_leaves_out_marked_tests_only_and_others_for_each_seed() -> None:
    whole = collected(1, variable="")
    alike = {test for test in whole if FUNCTION in test}
    assert len(alike) == 4
    samples = [collected(seed, variable="1") for seed in (1, 1, 2, 3, 4)]
    assert samples[0] == samples[1]
    assert len({frozenset(sample) for sample in samples}) > 1
    for sample in samples:
        assert whole - sample <= alike
        assert len(alike & sample) == 2
