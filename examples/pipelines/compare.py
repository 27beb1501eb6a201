"""Compares the losses of runs with those of plain PyTorch in one process, update by update.

    python examples/pipelines/compare.py small_transformer 2 8 RUN/iterations.jsonl ...

The words are a model of models.py, the samples of a microbatch, the microbatches of an update, and
files of runs (`spotctl launch` prints the folder of each run's model).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from agileml.pipeline.model import PipelineModel
from agileml.pipeline.torch_layers import modules_with

sys.path.append(str(Path(__file__).parent))
from models import MODELS, next_token_loss


def plain_losses(model: PipelineModel, name: str, microbatches: int) -> Iterator[float]:
    """The mean loss of each update, without a pipeline."""
    torch.set_num_threads(1)
    layers = range(len(model.layers))
    start = modules_with(
        model, {i: model.initial(i) for i in layers}, {i: model.initial_buffers(i) for i in layers}
    )
    whole, update = nn.ModuleList(start), 0
    transformer = "transformer" in name
    parameters = list(whole.parameters())
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, weight_decay=5e-4
    )
    if transformer:
        optimizer = torch.optim.AdamW(parameters, lr=3e-4)
    measure = next_token_loss if transformer else nn.functional.cross_entropy
    while True:
        optimizer.zero_grad()
        losses = []
        for k in range(update * microbatches, (update + 1) * microbatches):
            values, targets = model.data(k)
            for i, module in enumerate(whole):
                _seed(model.seed, k, i)
                values = module(values)
            loss = measure(values, targets)
            loss.backward()
            losses.append(loss.item())
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad /= microbatches
        if transformer:
            clip(whole, 1.0)
        optimizer.step()
        update += 1
        yield sum(losses) / len(losses)


def clip(modules: nn.ModuleList, largest: float) -> None:
    """As `clip_grad_norm_`, with a norm in double precision: in single precision, its last bits
    depend on the order.
    """
    squares = [
        sum(float(parameter.grad.double().square().sum()) for parameter in module.parameters())  # type: ignore[union-attr]
        for module in modules
    ]
    factor = min(largest / (sum(squares) ** 0.5 + 1e-6), 1.0)
    for parameter in modules.parameters():
        assert parameter.grad is not None
        parameter.grad *= factor


def _seed(*key: int) -> None:
    """Dropout draws for the seed, the microbatch and the layer, as in a pipeline."""
    from agileml.pipeline.model.base import seed_torch

    seed_torch(key)


def main(name: str, microbatch: int, microbatches: int, files: list[str]) -> None:
    runs = {file: _losses(Path(file)) for file in files}
    expected: list[float] = []
    for loss in plain_losses(MODELS[name](microbatch), name, microbatches):
        expected.append(loss)
        if len(expected) == max(map(len, runs.values())):
            break
    for file, losses in runs.items():
        largest = max(abs(a - b) / b for a, b in zip(losses, expected, strict=False))
        print(f"{file}: {len(losses)} updates, loss {losses[0]:.4f} to {losses[-1]:.4f},", end=" ")
        print(f"largest relative difference from one process {largest:.1e}")


def _losses(file: Path) -> list[float]:
    lines = map(json.loads, file.read_text().splitlines())
    return [line["loss"] for line in lines if "clock" in line]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
