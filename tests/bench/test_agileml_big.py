"""The benchmark of a large model, with a small one: the same path, and a memory that it can
state."""

from __future__ import annotations

import sys

import pytest

from bench import agileml_big


def test_a_model_of_many_frames_is_trained_and_its_memory_stated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["agileml_big", "--mib", "24", "--frame-mib", "1"])
    assert agileml_big.main() == 0
    *clocks, last = capsys.readouterr().out.splitlines()
    assert ["0.05 GiB pushed" in line for line in clocks] == [True] * agileml_big.CLOCKS
    assert "the model is right" in last
