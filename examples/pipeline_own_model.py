"""A model of PyTorch for pipeline stages: layers, loss, data and optimizer as one would write them
without a pipeline.

    pip install 'spotctl[torch]' spotctl lab parallel train examples/pipeline_own_model.py:build
    --nodes 4 --split stages=2 --faults "kill 3, warn 6"

Run as a script, it trains in two stages, puts the weights back into the model, and compares with
plain PyTorch.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from agileml.pipeline.model import PipelineModel
from agileml.pipeline.optimizers import TorchOptimizer
from agileml.pipeline.torch_layers import TorchLoss, modules_with, torch_layers
from agileml.pipeline.training import PipelinePlan, train_local

UPDATES, MICROBATCHES = 20, 4


def network() -> nn.Sequential:
    """Its first layer stays frozen."""
    whole = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 32),
        nn.ReLU(inplace=True),
        nn.Linear(32, 10),
    )
    whole[0].requires_grad_(False)
    return whole


def bright_spots(number: int, microbatch: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Microbatch `number`: the same samples for the same number, on any machine."""
    draw = torch.Generator().manual_seed(number)
    kinds = torch.randint(10, (microbatch,), generator=draw)
    images = 0.3 * torch.randn(microbatch, 1, 8, 8, generator=draw)
    images[torch.arange(microbatch), 0, kinds % 8, kinds // 2 + 1] += 3
    return images, kinds


def build(microbatch: int) -> PipelineModel:
    """Read by `spotctl lab parallel profile` and `train`."""
    optimizer = TorchOptimizer(
        partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
        partial(torch.optim.lr_scheduler.StepLR, step_size=10, gamma=0.5),
        clip_norm=1.0,
    )
    data = partial(bright_spots, microbatch=microbatch)
    return PipelineModel(
        torch_layers(network), TorchLoss(nn.CrossEntropyLoss()), data, optimizer=optimizer
    )


def plain_pytorch(model: PipelineModel) -> list[float]:
    """The losses of one process without a pipeline, from the same weights."""
    layers = range(len(model.layers))
    start = modules_with(
        model, {i: model.initial(i) for i in layers}, {i: model.initial_buffers(i) for i in layers}
    )
    whole = nn.Sequential(*start)
    trained = [parameter for parameter in whole.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    losses = []
    for update in range(UPDATES):
        optimizer.zero_grad()
        for k in range(update * MICROBATCHES, (update + 1) * MICROBATCHES):
            inputs, kinds = model.data(k)
            loss = nn.functional.cross_entropy(whole(inputs), kinds)
            (loss / MICROBATCHES).backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
    return losses


def main() -> None:
    torch.set_num_threads(1)
    model = build(microbatch=16)
    assert model.optimizer is not None
    result = train_local(
        model, model.optimizer, PipelinePlan(UPDATES, MICROBATCHES, least_stages=2), nodes=2
    )
    difference = max(abs(result.losses[k] - loss) for k, loss in enumerate(plain_pytorch(model)))
    print(
        f"two stages: loss {result.losses[0]:.4f} at first, "
        f"{result.losses[len(result.losses) - 1]:.4f} at the end"
    )
    print(f"largest difference from plain PyTorch: {difference:.1e}")
    ready = nn.Sequential(*modules_with(model, result.weights, result.buffers)).eval()
    inputs, kinds = bright_spots(10_000, microbatch=200)
    print(f"right in the test: {(ready(inputs).argmax(dim=1) == kinds).float().mean():.0%}")


if __name__ == "__main__":
    main()
