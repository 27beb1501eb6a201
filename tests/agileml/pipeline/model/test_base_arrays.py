"""Arrays of gradients."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from agileml.pipeline.model.base import ABSENT
from agileml.pipeline.torch_layers import (
    TorchLayer,
)
from tests.agileml.pipeline.model.torch_networks import OneGradient


def test_sums_of_gradients_share_no_memory() -> None:
    """PyTorch may give two weights one and the same gradient."""
    layer = TorchLayer(OneGradient)
    totals = tuple(ABSENT for _ in range(3))
    inputs = np.ones(2, dtype=np.float32)
    for _ in range(3):
        _, stash = layer.forward(layer.initial((0, 0, 0)), inputs, (0, 0, 0))
        _, totals = layer.backward_into(totals, stash, inputs)
    assert [total.tolist() for total in totals] == [[3.0, 3.0], [3.0, 3.0], []]
    assert inputs.tolist() == [1.0, 1.0]
