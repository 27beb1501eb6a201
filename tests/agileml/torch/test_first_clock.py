"""The comparison with plain PyTorch before a job starts, and the table of constructs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import agileml
import agileml.reference
from agileml.errors import BadTrainer
from agileml.runtime.output import Printed
from agileml.torch.trainer import SEED
from tests.agileml.torch.constructs import CONSTRUCTS, Counting, difference, summed, trained
from tests.agileml.torch.nets import Normalized, Shared, momentum, objective, trainer

EXACT = (
    "tied and frozen weights, momentum",
    "gradients added up over microbatches",
    "clipping by the norm",
    "clipping by the norm, AdamW",
    "a buffer that the module declares",
    "a gradient penalty",
    "a layer that some batches do not use, AdamW",
    "a warm-up by the clock",
    "weight_norm",
    "AveragedModel",
)
SAFE = ("tied and frozen weights, momentum", "a gradient penalty", "an optimizer of one's own")
WRONG = (
    *(
        "a count in an attribute of the module",
        "a network that follows another",
        "a hidden state from batch to batch",
    ),
    *(
        "hooks on layers, in four parts",
        "class weights",
        "samples left out of the mean (ignore_index)",
    ),
    *(
        "a contrastive loss",
        "a warm-up by a count of the objective",
        "an optimizer with norms of parameters",
    ),
    *("an optimizer with means of columns", "an optimizer that counts in an attribute"),
)


@pytest.mark.parametrize("name", EXACT)
def test_constructs_that_parts_do_not_change(name: str) -> None:
    (construct,) = (each for each in CONSTRUCTS if each.name == name)
    assert difference(construct) < 1e-6
    assert "the gradient differs by" in construct.trainer().check_start(4)


@pytest.mark.parametrize("name", SAFE)
def test_faults_do_not_change_constructs(name: str) -> None:
    (construct,) = (each for each in CONSTRUCTS if each.name == name)
    assert difference(construct, "sim") < 1e-6


@pytest.mark.parametrize("name", WRONG)
def test_constructs_that_parts_would_change_are_refused(name: str) -> None:
    (construct,) = (each for each in CONSTRUCTS if each.name == name)
    with pytest.raises(BadTrainer):
        trained(construct.trainer(), "sim")


def test_a_loss_that_is_no_mean_is_refused_before_the_job_starts() -> None:
    with pytest.raises(BadTrainer, match=r"differs by 75\.0% .* must return the mean"):
        agileml.train(trainer(Shared, momentum, loss=summed), "1+0", clocks=1)


def test_a_job_prints_the_difference() -> None:
    printed: list[Printed] = []
    agileml.train(trainer(Shared, momentum), "1+0", clocks=1, output=printed.append)
    assert any(line.text.startswith("first clock against plain PyTorch") for line in printed)


def test_dropout_is_off_and_norms_are_frozen_while_gradients_are_compared() -> None:
    said = trainer(Normalized, momentum).check_start(1)
    assert "the gradient differs by" in said
    assert "batch normalization by running statistics" in said
    said = trainer(partial(Normalized, dropout=0.5), momentum).check_start(1)
    assert "the gradient differs by" in said
    assert "without dropout" in said
    assert trainer(Shared, momentum, loss=summed, tolerance=float("inf")).check_start(1) == ""


def shuffled(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """Draws which samples count."""
    return objective(
        net, [part[torch.randperm(len(batch[0]))[: len(batch[0]) // 2]] for part in batch]
    )


def test_other_random_numbers_are_said() -> None:
    assert "random numbers" in trainer(Shared, momentum, loss=shuffled).check_start(1)


class Attending(nn.Module):
    """Layers whose dropout is an argument of a function."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
        self.recurrent = nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)
        self.out = nn.Linear(8, 20)

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        del numbers
        hidden = self.words(words)[:, None]
        hidden = hidden + self.attention(hidden, hidden, hidden)[0]
        hidden = nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.3)
        scores: torch.Tensor = self.out(self.recurrent(hidden)[0][:, 0])
        return scores


def contrastive(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    scores = nn.functional.normalize(net(batch[0], batch[1]), dim=1)
    return -(scores @ scores.T * 5).log_softmax(1).diag().mean()


def weighted(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    numbers, words, targets = batch
    weights = torch.linspace(0.1, 3.0, 20)
    return nn.functional.cross_entropy(net(numbers, words), targets, weight=weights)


def ignoring(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    """The mean over samples whose number depends on the batch."""
    numbers, words, targets = batch
    targets = torch.where(numbers[:, 0] > 0.7, -100, targets)
    return nn.functional.cross_entropy(net(numbers, words), targets, ignore_index=-100)


NO_MEAN = {
    "a sum": summed,
    "contrastive": contrastive,
    "class weights": weighted,
    "left out": ignoring,
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "plain": Shared,
    "dropout": partial(Normalized, dropout=0.3),
    "batch norm": Normalized,
    "attention": Attending,
}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("loss", NO_MEAN)
def test_a_loss_that_is_no_mean_over_samples_is_refused(loss: str, module: str) -> None:
    given = trainer(MODULES[module], momentum, loss=NO_MEAN[loss])
    with pytest.raises(BadTrainer, match=r"differs by .* must return the mean"):
        given.check_start(1)
    whole = trainer(MODULES[module], momentum, loss=NO_MEAN[loss], parts=1)
    assert "the gradient differs by" in whole.check_start(1)


@pytest.mark.parametrize("module", MODULES)
def test_a_mean_is_accepted(module: str) -> None:
    said = trainer(MODULES[module], momentum).check_start(1)
    share = re.search(r"the gradient differs by (\S+),", said)
    assert share is not None
    assert float(share[1]) < 1e-5


class Annealing(Shared):
    """Counts in an attribute, on which its result depends."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().forward(numbers, words) * (1 + self.steps * 0.2)


class Logging(Annealing):
    """The count has no effect yet."""

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        return super().forward(numbers, words) / (1 + self.steps * 0.2)


class Carrying(nn.Module):
    """Begins where the last batch ended."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 6)
        self.out = nn.Linear(6, 20)
        self.hidden: torch.Tensor | None = None

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        del words
        fits = self.hidden is not None and len(self.hidden) == len(numbers)
        hidden = self.cell(numbers, self.hidden if fits else None)
        self.hidden = hidden.detach()
        scores: torch.Tensor = self.out(hidden)
        return scores


class Remembering(Shared):
    """Keeps its last scores to be looked at, without effect."""

    scores: torch.Tensor | None = None

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        scores = super().forward(numbers, words)
        self.scores = scores.detach()
        return scores


def test_state_in_attributes_is_refused_if_it_counts_or_has_an_effect() -> None:
    for module, name in ((Annealing, "steps"), (Logging, "steps"), (Carrying, "hidden")):
        with pytest.raises(BadTrainer, match=f"the module's attribute '{name}' changes .*forward"):
            trainer(module, momentum).check_start(1)
    assert "the gradient differs by" in trainer(Remembering, momentum).check_start(1)


def test_a_count_of_the_objective_is_refused_and_the_clock_is_right() -> None:
    calls = []

    def counting(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
        calls.append(1)
        return objective(net, batch) * min(1.0, len(calls) / 20)

    with pytest.raises(
        BadTrainer,
        match=r"the objective or the module changes .* use objective.module, batch, clock.",
    ):
        trainer(Shared, momentum, loss=counting).check_start(1)

    def warming(net: nn.Module, batch: list[torch.Tensor], clock: int = 0) -> torch.Tensor:
        return objective(net, batch) * min(1.0, clock / 5)

    given = trainer(Shared, plain_sgd, loss=warming)
    assert "the gradient differs by" in given.check_start(1)
    model = agileml.reference.run(given, 9, seed=4)
    net = given.build(int(model[SEED][0, 0]))
    optimizer = plain_sgd(net)
    for clock in range(1, 10):
        (batch,) = given.batch_of(clock, seed=4)
        optimizer.zero_grad()
        torch.autograd.backward(warming(net, batch, clock))  # type: ignore[arg-type]
        optimizer.step()
    for name, values in net.state_dict().items():
        assert torch.allclose(given.state_dict(model)[name], values, rtol=1e-5, atol=1e-6), name


def test_a_later_clock_is_compared() -> None:
    """From the third clock on, the loss is a sum."""

    def late(net: nn.Module, batch: list[torch.Tensor], clock: int = 0) -> torch.Tensor:
        return summed(net, batch) if clock > 2 else objective(net, batch)

    with pytest.raises(BadTrainer, match=r"the gradient of batch \d+ differs"):
        trainer(Shared, momentum, loss=late).check_start(1)


def test_a_simulation_checks_as_any_engine_does() -> None:
    printed: list[Printed] = []
    agileml.train(trainer(Shared, momentum), "1+1", "sim", clocks=1, output=printed.append)
    assert any(line.text.startswith("first clock against plain PyTorch") for line in printed)
    with pytest.raises(BadTrainer, match="must return the mean"):
        agileml.train(trainer(Shared, momentum, loss=summed), "1+1", "sim", clocks=1)


def plain_sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([one for one in net.parameters() if one.requires_grad], lr=0.1)


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
        BadTrainer,
        match=r"averaged_buffers of layer 'the module': 'step' is not one of its buffers \(steps\)",
    ):
        agileml.reference.run(trainer(Mistaken, momentum, loss=objective), 1, seed=1)
