"""Variables that a loop changes."""

from __future__ import annotations

from tests.agileml.torch.test_loop_trainer import load


def test_a_variable_without_effect_may_be_ignored() -> None:
    assert load("with_an_ignored_count").check_start(3)  # type: ignore[attr-defined]
