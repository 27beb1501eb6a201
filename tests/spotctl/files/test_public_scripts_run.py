"""Public scripts that init changes: launched through evictions, each goes on from its checkpoint to
its result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import pytest
import torch

from tests.samples import LONG_RUN
from tests.spotctl.files.public_scripts_run import ENOUGH_EVICTIONS, PUBLIC, Run, evicted

UNWRITTEN_STEPS = 2
"""Lightning writes its log after every second row: a machine without a warning takes the last rows
with it."""


@pytest.mark.slow
@LONG_RUN
@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_script_is_evicted_and_goes_on_to_its_result(tmp_path: Path, name: str) -> None:
    script = PUBLIC[name]
    if script.missing:
        pytest.skip(f"{name}.py needs {', '.join(script.missing)}")
    run = evicted(script, tmp_path)
    assert (run.answer["outcome"], run.lines <= 3) == ("done", True)
    assert run.costly_evictions >= ENOUGH_EVICTIONS, run.lives
    assert run.resumed >= ENOUGH_EVICTIONS
    unwritten = UNWRITTEN_STEPS * run.answer["evictions"] if script.log else 0
    assert script.marks - unwritten <= run.done <= script.marks, run.lives
    assert run.repeated < run.in_evicted_lives, run.lives
    assert run.has_results
    assert trained(run) == TRAINED.get(name)


TRAINED = {"imagenet": 20, "out_of_core": 30_000}
"""Epochs or samples that the result counts as seen."""


def trained(run: Run) -> Any:  # noqa: ANN401  # a number that a library keeps
    path = run.folder / "results" / run.script.results[0]
    if run.script.name == "imagenet":
        return torch.load(path)["epoch"]
    return joblib.load(path).t_ - 1 if run.script.name == "out_of_core" else None
