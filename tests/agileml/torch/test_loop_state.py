"""State of a loop with which no other node could go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import agileml
from agileml.errors import BadTrainer
from tests.agileml.torch import loops
from tests.agileml.torch.test_loop_trainer import load, source


@pytest.mark.parametrize("loop", loops.BAD, ids=lambda loop: loop.__name__)
def test_a_loop_that_no_other_node_could_continue_is_refused(loop: Callable[[], None]) -> None:
    with pytest.raises(BadTrainer, match=loops.BAD[loop]) as refused:
        load(loop.__name__).check_start(3)  # type: ignore[attr-defined]
    assert "state=..." in str(refused.value)


def test_a_state_that_appears_later_is_refused_in_the_job() -> None:
    with pytest.raises(BadTrainer, match=r"step \d+: .*'calls' of .*late.* changes each time"):
        agileml.train(source("late"), "1+1", "sim", clocks=10, output=lambda _: None)
