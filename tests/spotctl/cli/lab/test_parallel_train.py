"""`lab parallel train`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl


def test_a_model_is_trained_through_a_kill(tmp_path: Path) -> None:
    given = ["--batches", "8", "--microbatch", "4", "--microbatches", "4", "--json"]
    calm, disturbed = tmp_path / "calm.npz", tmp_path / "disturbed.npz"
    first = spotctl(
        "lab", "parallel", "train", "mlp", "--engine", "sim", "--nodes", "2", *given, "--out", calm
    ).json
    second = spotctl(
        "lab",
        "parallel",
        "train",
        "mlp",
        "--nodes",
        "3",
        *given,
        "--out",
        disturbed,
        "--faults",
        "kill 3",
    ).json
    assert first["loss"] == second["loss"]
    with np.load(calm) as one, np.load(disturbed) as other:
        assert all(np.array_equal(one[name], other[name]) for name in one.files)


@pytest.mark.parametrize(
    "words",
    [
        ["--faults", "explode 3"],
        ["--engine", "cloud"],
        ["--engine", "sim", "--faults", "kill 3"],
        ["--optimizer", "lion"],
        ["--split", "scheme=zigzag"],
        ["--split", "stages=0"],
        ["--microbatch", "0"],
        ["--out", "missing/model.npz"],
        ["--checkpoint", "missing/run.npz"],
        ["--plan", "{}"],
    ],
)
def test_training_that_cannot_start(words: list[str], approved: Approved) -> None:
    refused = spotctl("lab", "parallel", "train", "mlp", *words)
    approved(refused)


def test_a_training_that_cannot_go_on_saves_its_last_copy(tmp_path: Path) -> None:
    out = tmp_path / "weights.npz"
    words = (
        "mlp",
        "--nodes",
        "2",
        "--split",
        "stages=2",
        "--batches",
        "1000",
        "--faults",
        "kill 3",
        "--out",
        out,
    )
    ended = spotctl("lab", "parallel", "train", *words)
    assert ended.code == 1
    assert "1 nodes are left in update" in ended.err
    assert re.search(rf"the weights after update [1-9] are saved in {out}\n", ended.err)
    assert len(np.load(out).files) > 0
