"""The loop as anyone writes it, next to a job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import (
    Dataset,
)

import agileml
from agileml.errors import BadArgument
from agileml.torch import TorchModule, plain_training
from agileml.torch.plain import plain_losses
from tests.agileml.torch.nets import (
    Line,
    Normalized,
    Shared,
    Shares,
    data,
    momentum,
    objective,
    trainer,
)
from tests.agileml.torch.test_orders import looped, same, with_seed


@pytest.mark.parametrize(
    "name", ["shuffled by a generator", "weighted", "batches of its own", "with processes"]
)
def test_a_job_with_faults_trains_as_a_loop_over_the_loader(name: str) -> None:
    expected = looped(name)
    given = trainer(Shared, momentum, with_seed(name), order="loader", parts=8)
    chaos = "at clock 2 kill 1; at clock 3 join 1"
    result = agileml.train(
        given, "1+2", "sim", clocks=len(expected), deterministic=True, chaos=chaos, seed=3
    )
    assert result.failures == 1
    net = next(plain_training(given, seed=3))[0]
    optimizer = momentum(net)
    for batch in expected:
        optimizer.zero_grad()
        torch.autograd.backward(objective(net, batch))
        optimizer.step()
    assert apart(given.state_dict(result.model), net) < 1e-5


def apart(state: dict[str, torch.Tensor], net: nn.Module) -> float:
    return max(
        float((state[name].double() - values.double()).abs().max())
        for name, values in net.state_dict().items()
    )


def test_a_plain_training_is_a_loop_as_anyone_writes_it() -> None:
    schedule = partial(lr_scheduler.StepLR, step_size=2, gamma=0.5)
    given = trainer(Shared, momentum, schedule=schedule, clip_norm=0.05, loss_scale=1024.0)
    own, nets = None, plain_training(given, seed=4)
    for clock, (net, batch) in zip(range(1, 8), nets, strict=False):
        if own is None:
            own = given.build(0)
            own.load_state_dict(net.state_dict())
            optimizer = momentum(own)
            scheduler = schedule(optimizer)
        assert same(batch, given.batch_of(clock, seed=4)[0])
        assert apart(dict(net.state_dict()), own) < 1e-6
        optimizer.zero_grad()
        torch.autograd.backward(objective(own, batch))  # type: ignore[arg-type]
        nn.utils.clip_grad_norm_(own.parameters(), 0.05)
        optimizer.step()
        scheduler.step()
    model = agileml.train(given, "1+2", "sim", clocks=6, seed=4, deterministic=True).model
    assert apart(given.state_dict(model), next(net for net, _ in [(net, 0)])) < 1e-5


@pytest.mark.parametrize("dataset", [data, Line, Shares])
def test_the_curve_of_a_job_lies_on_that_of_plain_pytorch(
    dataset: Callable[[], Dataset[Any]],
) -> None:
    given = trainer(Shared, momentum, dataset, loss_every=1)
    result = agileml.train(
        given, "1+2", "sim", clocks=6, seed=4, deterministic=True, loss_sample=40
    )
    ours = [*result.history, result.loss]
    theirs = plain_losses(given, range(7), 4, 40)
    assert ours == pytest.approx(list(theirs), rel=1e-5)
    assert ours[-1] < ours[0]  # type: ignore[operator]


def test_only_a_torch_module_has_a_plain_loop() -> None:
    class Other(TorchModule):
        pass

    with pytest.raises(BadArgument, match="Other is no TorchModule"):
        next(plain_training(Other(Normalized, data, objective, momentum)))
