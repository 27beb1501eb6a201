"""The published transformer of 175 billion parameters."""

from __future__ import annotations

import pytest

from agileml.errors import BadArgument
from spotctl.lab.transformer import (
    TransformerLayout,
    TransformerShape,
    layout_by_rule,
    traffic,
)

LARGE = TransformerShape(layers=96, hidden=12288, vocabulary=51200, sequence=2048)


def test_parameters() -> None:
    assert pytest.approx(174.6e9, abs=0.05e9) == LARGE.parameters


@pytest.mark.parametrize(("devices", "tflops", "days"), [(384, 153, 84.7), (1536, 141, 23.0)])
def test_training_days(devices: int, tflops: float, days: float) -> None:
    assert LARGE.training_days(300e9, devices, tflops * 1e12) == pytest.approx(days, abs=0.05)


def test_training_time_is_about_eight_operations_per_token_and_parameter() -> None:
    estimate = 8 * 300e9 * LARGE.parameters / (384 * 153e12) / 86400
    assert LARGE.training_days(300e9, 384, 153e12) == pytest.approx(estimate, rel=0.06)


def test_operations_grow_with_the_batch() -> None:
    assert LARGE.batch_operations(1536) == pytest.approx(1536 * LARGE.batch_operations(1))


def test_traffic() -> None:
    sent = traffic(LARGE, TransformerLayout(8, 6, 32), microbatch=2)
    activation = 2 * 2048 * 12288
    assert (sent.cut, sent.tensor) == (activation, 8 * activation * 7 / 8)
    assert sent.batch == pytest.approx(2 * 31 / 32 * LARGE.parameters / 48)
    scattered = traffic(LARGE, TransformerLayout(8, 6, 32), microbatch=2, chunks=3, scatter=True)
    assert scattered.cut == 3 * activation / 8
    assert traffic(LARGE, TransformerLayout(1, 1, 1), microbatch=1).cut == 0


def test_rule_fills_a_server_then_adds_stages_then_pipelines() -> None:
    small = TransformerShape(24, 1024, 51200, 1024)
    assert layout_by_rule(small, 16, 8, 80e9, 16) == TransformerLayout(1, 1, 16)
    assert layout_by_rule(LARGE, 1536, 8, 80e9, 16) == TransformerLayout(8, 6, 32)
    with pytest.raises(
        BadArgument, match=r"devices is 8: 1.746e\+11 parameters need 2.794e\+12 bytes"
    ):
        layout_by_rule(LARGE, 8, 8, 80e9, 16)


def test_sizes_are_checked() -> None:
    with pytest.raises(BadArgument, match="hidden is 0"):
        TransformerShape(1, 0, 1, 1)
