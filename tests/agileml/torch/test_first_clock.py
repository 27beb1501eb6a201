"""The comparison with plain PyTorch before a job starts, and the table of constructs."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import agileml
import agileml.reference
from agileml.errors import BadTrainer
from agileml.runtime.output import Printed
from tests.agileml.torch.constructs import CONSTRUCTS, Counting, difference, summed
from tests.agileml.torch.nets import Normalized, Shared, momentum, objective, trainer

EXACT = (
    "tied and frozen weights, momentum",
    "gradients added up over microbatches",
    "clipping by the norm",
    "clipping by the norm, AdamW",
    "a buffer that the module declares",
)


@pytest.mark.parametrize("name", EXACT)
def test_constructs_that_parts_do_not_change(name: str) -> None:
    (construct,) = (each for each in CONSTRUCTS if each.name == name)
    assert difference(construct) < 1e-6
    assert "the gradient differs by" in construct.trainer().check_start(4)


def test_a_loss_that_is_no_mean_is_refused_before_the_job_starts() -> None:
    with pytest.raises(BadTrainer, match=r"differs by 75\.0% .* must return the mean"):
        agileml.train(trainer(Shared, momentum, loss=summed), "1+0", clocks=1)


def test_a_job_prints_the_difference() -> None:
    printed: list[Printed] = []
    agileml.train(trainer(Shared, momentum), "1+0", clocks=1, output=printed.append)
    assert any(line.text.startswith("first clock against plain PyTorch") for line in printed)


def test_what_cannot_be_equal_is_said_and_not_refused() -> None:
    assert "batch normalization" in trainer(Normalized, momentum).check_start(1)
    assert "random numbers" in trainer(partial(Normalized, dropout=0.5), momentum).check_start(1)
    assert trainer(Shared, momentum, loss=summed, tolerance=float("inf")).check_start(1) == ""


class Averaging(nn.Module):
    """Keeps the mean of its inputs, and declares how parts are combined."""

    averaged_buffers = ("mean",)
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 20)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        del words
        if self.training:
            self.mean.copy_(0.9 * self.mean + 0.1 * numbers.mean(0))
        scores: torch.Tensor = self.out(numbers - self.mean)
        return scores


def test_a_declared_buffer_is_the_mean_over_the_parts() -> None:
    given = trainer(Averaging, momentum, parts=4)
    whole = trainer(Averaging, momentum, parts=1)
    means = [agileml.reference.run(each, 1, seed=4)["mean"] for each in (given, whole)]
    assert torch.allclose(torch.tensor(means[0]), torch.tensor(means[1]), atol=1e-6)


def test_a_declaration_without_a_buffer_is_refused() -> None:
    class Mistaken(Counting):
        averaged_buffers = ("step",)

    with pytest.raises(
        BadTrainer, match=r"averaged_buffers of layer 'the module': 'step' is not one of its buffers \(steps\)"
    ):
        agileml.reference.run(trainer(Mistaken, momentum, loss=objective), 1, seed=1)
