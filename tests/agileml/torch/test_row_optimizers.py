"""Optimizers that work on some rows, with the state of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from agileml import reference
from agileml.errors import AgileMLError
from agileml.torch.trainer import SEED
from tests.agileml.torch.nets import (
    Shared,
    clipped_by_hook,
    data,
    momentum,
    trainer,
)
from tests.agileml.torch.test_trainer import CLOCKS, plain
from tests.agileml.torch.test_what_steps_change import plain_sgd, trained

HERE = r"test_row_optimizers\.py, line \d+, in "


def late_momentum(net: nn.Module) -> torch.optim.Optimizer:
    first, *others = trained(net)
    groups: list[dict[str, Any]] = [{"params": [first]}, {"params": others, "momentum": 0.9}]
    return torch.optim.SGD(groups, lr=0.1)


def late_amsgrad(net: nn.Module) -> torch.optim.Optimizer:
    first, *others = trained(net)
    groups: list[dict[str, Any]] = [{"params": [first]}, {"params": others, "amsgrad": True}]
    return torch.optim.Adam(groups, lr=0.05)


GROUPS: dict[str, tuple[Callable[[nn.Module], Any], Any]] = {
    "momentum in the second group": (late_momentum, None),
    "more state in the second group": (late_amsgrad, None),
    # Sets a momentum that the optimizer was made without.
    "momentum by the schedule": (
        plain_sgd,
        partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=CLOCKS + 1),
    ),
    "a schedule that begins at 0": (
        momentum,
        partial(lr_scheduler.LambdaLR, lr_lambda=lambda steps: min(1, steps / 4)),
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_each_group_has_the_state_that_its_options_need(case: str) -> None:
    optimizer, schedule = GROUPS[case]
    given = trainer(Shared, optimizer, schedule=schedule)
    model = reference.run(given, CLOCKS, seed=4, partitions=3)
    expected, found = plain(given, int(model[SEED][0, 0])).state_dict(), given.state_dict(model)
    for name, values in expected.items():
        assert torch.allclose(found[name], values, rtol=1e-5, atol=1e-5), name


class Limited(torch.optim.SGD):
    """Clips gradients that are larger than any of a small parameter."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        nn.utils.clip_grad_norm_(
            [one for group in self.param_groups for one in group["params"]], 5.0
        )
        return super().step(closure)


class Warming(torch.optim.SGD):
    """Counts its steps outside of its state."""

    def __init__(self, parameters: Any) -> None:  # noqa: ANN401
        super().__init__(parameters, lr=0.1)
        self.steps = 0

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        self.steps += 1
        self.param_groups[0]["lr"] = 0.1 * min(1, self.steps / 8)
        return super().step(closure)


class Slowing(torch.optim.SGD):
    """Counts its steps in its groups."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            group["lr"] = 0.1 / group["steps"]
        return super().step(closure)


class Factor(torch.optim.SGD):
    """Has an attribute that stays as it is."""

    def __init__(self, parameters: Any) -> None:  # noqa: ANN401
        super().__init__(parameters, lr=0.1)
        self.factor = 0.5

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        for group in self.param_groups:
            group["lr"] = 0.1 * self.factor
        return super().step(closure)


def test_an_optimizer_may_have_attributes_of_its_own() -> None:
    models = [
        reference.model_digest(reference.run(trainer(Shared, optimizer), 3, seed=1))
        for optimizer in (
            lambda net: Factor(trained(net)),
            lambda net: torch.optim.SGD(trained(net), lr=0.05),
        )
    ]
    assert models[0] == models[1]


class Accumulating(torch.optim.SGD):
    """Keeps something from its third step on."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        result = super().step(closure)
        for one in self.param_groups[0]["params"]:
            state = self.state[one]
            state["steps"] = state.get("steps", torch.zeros(())) + 1
            if state["steps"] > 2:
                state["sum"] = torch.zeros_like(one)
        return result


def with_a_hook(net: nn.Module) -> torch.optim.Optimizer:
    optimizer = plain_sgd(net)

    def clip(*_: Any) -> None:  # noqa: ANN401
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def sparse_momentum(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained(net), lr=0.1, momentum=0.9)


class Hooked(Shared):
    """Clips what has accumulated."""

    def __init__(self) -> None:
        super().__init__()
        hooks: Any = self.scale
        hooks.register_post_accumulate_grad_hook(lambda one: one.grad.clamp_(-0.1, 0.1))


class Following(Shared):
    """A frozen copy follows the layer that is trained; PyTorch counts no change through `.data`."""

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        for one in self.frozen.parameters():
            one.data.mul_(0.9)
        return super().forward(numbers, words)


class Replaced(Shared):
    """The same with new memory."""

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.frozen.weight.data = self.frozen.weight.data * 0.9
        return super().forward(numbers, words)


class Clamped(Shared):
    """Its weights stay within limits on the node that computes."""

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        self.first.weight.data.clamp_(-0.1, 0.1)
        return super().forward(numbers, words)


class Remembering(Shared):
    """Counts in a buffer, without PyTorch's knowledge."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls.data += 1
        return super().forward(numbers, words)


class Renormalized(nn.Module):
    """PyTorch shortens the rows that are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 20, max_norm=0.5)

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        del numbers
        scores: torch.Tensor = self.words(words)
        return scores


class Guarded(Shared):
    """Has something that belongs to one process."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()


OUTSIDE = nn.Parameter(torch.zeros(2))


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"optimizer": lambda net: Limited(trained(net), lr=0.1)},
        "optimizer Limited: its update of a row depends on other",
    ),
    (
        {"optimizer": lambda net: Accumulating(trained(net), lr=0.1)},
        "Accumulating: its state 'sum' appeared after",
    ),
    (
        {"optimizer": lambda net: Slowing(trained(net), lr=0.1)},
        "optimizer Slowing: its second step depends on what the first one left in its parameter "
        "groups",
    ),
    (
        {"optimizer": lambda net: Warming(trained(net))},
        r"optimizer Warming: its attribute 'steps' changes with each step, .* in self.state\[parameter\]",
    ),
    (
        {"optimizer": with_a_hook},
        "optimizer SGD has a hook for its steps, which would not see the gradients",
    ),
    (
        {"optimizer": lambda net: torch.optim.SGD([*trained(net), OUTSIDE], lr=0.1)},
        r"optimizer SGD: a parameter of shape \(2,\) in its group 0 does not belong to the module",
    ),
    (
        {"module": partial(Shared, sparse=True, tied=False), "optimizer": sparse_momentum},
        "optimizer SGD: its state 'momentum_buffer' becomes sparse .*; use SparseAdam, Adagrad, or "
        "SGD without",
    ),
    (
        {"schedule": lambda _: None},
        "schedule made NoneType; it must make one of torch.optim.lr_scheduler",
    ),
    (
        {"schedule": partial(lr_scheduler.OneCycleLR, max_lr=0.2, total_steps=4)},
        "schedule OneCycleLR has no rate for clock 6: Tried to step 5 times",
    ),
    ({"module": Hooked}, "parameter 'scale' has a hook for its accumulated gradient"),
    (
        {"module": clipped_by_hook},
        r"parameter 'scale' has a hook for its gradient \(register_hook\), which would run for",
    ),
    (
        {"module": clipped_by_hook, "parts": 1, "microbatch": 6},
        "parameter 'scale' has a hook for its gradient",
    ),
    (
        {"module": clipped_by_hook(), "parts": 1},
        "parameter 'scale' has a hook for its gradient .* function that makes",
    ),
    *(
        (
            {"module": module},
            rf"clock 1, shard \d, {what}: the module changed it; {why}.*{HERE}forward",
        )
        for module, what, why in (
            (Following, "parameter 'frozen.weight'", "the optimizer does not train it"),
            (Replaced, "parameter 'frozen.weight'", "the optimizer does not train it"),
            (Clamped, "parameter 'first.weight'", "only its optimizer can, on the servers"),
            (Remembering, "buffer 'calls'", "other nodes would not see the change"),
            (Renormalized, "parameter 'words.weight'", "only its optimizer can"),
        )
    ),
    (
        {"dataset": lambda: torch.utils.data.DataLoader(data())},
        r"batch_size is \d+, but the DataLoader has 1",
    ),
    ({"dataset": lambda: iter(data())}, r"dataset \w+ has no length or no samples by number"),
    (
        {"module": Guarded()},
        r"module Guarded cannot be copied \(cannot pickle .*\); pass a function that makes it",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_servers_could_not_do_is_refused(number: int) -> None:
    options, problem = REFUSED[number]
    with pytest.raises(AgileMLError, match=problem) as raised:
        reference.run(trainer(**{"optimizer": plain_sgd, **options}), CLOCKS, seed=1)
    assert "\n" not in str(raised.value)
