"""The example with five evictions, with its small models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import LONG_RUN

pytest.importorskip("torch")

EXAMPLE = Path(__file__).parents[4] / "examples" / "pipelines" / "evictions.py"


@LONG_RUN
@pytest.mark.slow
@pytest.mark.parametrize("model", ["small_transformer", "small_resnet"])
def test_five_evictions_change_no_loss(model: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, EXAMPLE, model],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "24 of 24 losses are those of plain PyTorch, bit for bit" in ended.stdout
