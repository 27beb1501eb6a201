"""`python -m tests.agileml.pipeline.model.torch_constructs`: what models of PyTorch do, in a
pipeline and without one.

Each model trains in one process with plain PyTorch on the same microbatches, in our pipelines, and,
with `--torch`, in two processes under `torch.distributed.pipelining`. The table has the largest
relative difference of a loss.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import Microbatches, PipelineModel, seed_torch, tensor_of
from agileml.pipeline.optimizers import TorchOptimizer
from agileml.pipeline.run.local import train_simulated
from agileml.pipeline.run.training import PipelinePlan, TrainedPipeline
from agileml.pipeline.torch_layers import TorchLoss, torch_layers
from tests.agileml.pipeline.model.torch_networks import (
    LAST,
    Joined,
    Masked,
    Skipping,
    Staged,
    TwoInputs,
    Unmasked,
    Unused,
    Within,
    dropping,
    frozen,
    groups,
    halved,
    images,
    in_place,
    lowered,
    normalized,
    pairs,
    per_token,
    plain,
    points,
    tied,
    tied_thrice,
    tokens,
    warmed_up,
)

UPDATES, MICROBATCHES, SEED = 4, 4, 7


SGD = partial(torch.optim.SGD, lr=0.1)


@dataclass(frozen=True)
class Construct:
    """A model with something that real models have."""

    name: str
    build: Callable[[], Any]
    data: Microbatches = points
    loss: Callable[..., torch.Tensor] = field(default_factory=nn.CrossEntropyLoss)
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = SGD
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None
    clip_norm: float | None = None
    one_pipeline: bool = False

    def model(self) -> PipelineModel:
        return PipelineModel(torch_layers(self.build), TorchLoss(self.loss), self.data, SEED)

    @property
    def rule(self) -> TorchOptimizer:
        return TorchOptimizer(self.make, self.schedule, self.clip_norm)

    def children(self) -> list[nn.Module]:
        """The modules of plain PyTorch, with the same weights at the start."""
        seed_torch((SEED, 0, 0))
        whole = self.build()
        return list(getattr(whole, "stages", whole))


ADAM = partial(torch.optim.Adam, lr=0.01)
MOMENTUM = partial(SGD, momentum=0.9)
CYCLE = partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=10)
CONSTRUCTS = [
    Construct("Sequential, SGD", plain),
    Construct("a module with a list `stages`", Staged),
    Construct("frozen parameters, weight decay", frozen, make=partial(SGD, weight_decay=0.1)),
    Construct("ReLU(inplace=True), and x += 1", in_place),
    Construct(
        "several inputs and outputs",
        lambda: nn.Sequential(TwoInputs(), TwoInputs(), Joined()),
        pairs,
    ),
    Construct(
        "a skip connection across stages",
        lambda: nn.Sequential(Skipping(), Within(), Within(), Joined()),
    ),
    Construct(
        "integers next to activations",
        lambda: nn.Sequential(Masked(), Unmasked()),
        tokens,
        per_token,
    ),
    Construct(
        "unused parameters, AdamW",
        lambda: nn.Sequential(Unused(), nn.Tanh(), LAST()),
        make=partial(torch.optim.AdamW, lr=0.01),
    ),
    Construct("tied weights, stages apart", partial(tied, between=2), tokens, per_token, ADAM),
    Construct("a layer used three times", tied_thrice, make=MOMENTUM),
    Construct("dropout", dropping),
    Construct("BatchNorm", normalized, images, one_pipeline=True),
    Construct("bfloat16 weights", halved, make=MOMENTUM),
    Construct("bfloat16 by autocast", lowered),
    Construct(
        "SGD, Nesterov, weight decay",
        plain,
        make=partial(MOMENTUM, nesterov=True, weight_decay=0.01),
    ),
    Construct("AdamW with groups of parameters", plain, make=groups),
    Construct("warm-up, then a cosine schedule", plain, make=ADAM, schedule=warmed_up),
    Construct("OneCycleLR, which changes betas", plain, make=ADAM, schedule=CYCLE),
    Construct("clipping by the norm of all stages", plain, make=MOMENTUM, clip_norm=0.2),
    Construct(
        "clipping with tied weights", partial(tied, between=3), tokens, per_token, clip_norm=0.1
    ),
    Construct("a loss with label smoothing", plain, loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
]


def plain_torch(construct: Construct) -> tuple[list[float], list[nn.Module]]:
    """The loss of each microbatch, and the trained modules, of one process."""
    children = construct.children()
    trained = [p for p in nn.ModuleList(children).parameters() if p.requires_grad]
    optimizer = construct.make(trained)
    schedule = construct.schedule(optimizer) if construct.schedule else None
    losses = []
    for update in range(UPDATES):
        optimizer.zero_grad()
        for k in range(update * MICROBATCHES, (update + 1) * MICROBATCHES):
            values, targets = construct.data(k)
            for i, child in enumerate(children):
                seed_torch((SEED, k, i))
                values = child(*values) if isinstance(values, tuple) else child(values)
            loss = construct.loss(values, targets)
            torch.autograd.backward(loss / MICROBATCHES)
            losses.append(loss.item())
        if construct.clip_norm:
            torch.nn.utils.clip_grad_norm_(trained, construct.clip_norm)
        optimizer.step()
        if schedule:
            schedule.step()
    return losses, children


def layouts(layers: int, *, one_pipeline: bool) -> list[tuple[str, PipelineLayout]]:
    """Two stages, as many as fit, two chunks, and two pipelines of different depths."""

    def cut(stages: int) -> tuple[tuple[int, int], ...]:
        bounds = [layers * s // stages for s in range(stages + 1)]
        return tuple((a, b - 1) for a, b in pairwise(bounds))

    found = [("flush", PipelineLayout((cut(2),), (MICROBATCHES,)))]
    found.append(("gpipe", PipelineLayout((cut(min(layers, 4)),), (MICROBATCHES,))))
    if layers >= 4:
        found.append(("interleaved", PipelineLayout((cut(4),), (MICROBATCHES,), 2)))
    if not one_pipeline:
        found.append(("flush", PipelineLayout((cut(2), cut(1)), (MICROBATCHES - 1, 1))))
    return found


def piped(
    construct: Construct, scheme: str, layout: PipelineLayout, *, recompute: bool
) -> TrainedPipeline:
    nodes = len(layout.seats())
    plan = PipelinePlan(
        UPDATES, MICROBATCHES, scheme, layout.chunks, recompute, layouts={nodes: layout}
    )
    return train_simulated(construct.model(), construct.rule, plan, nodes)


def largest_difference(losses: Sequence[float], expected: Sequence[float]) -> float:
    assert len(losses) == len(expected)
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(losses, expected, strict=True))


def differences(construct: Construct) -> tuple[float, float]:
    """The largest differences from plain PyTorch of a loss and of a weight or buffer, over all
    layouts.
    """
    expected, children = plain_torch(construct)
    worst, weights = 0.0, 0.0
    for recompute in (False, True):
        for scheme, layout in layouts(len(children), one_pipeline=construct.one_pipeline):
            result = piped(construct, scheme, layout, recompute=recompute)
            worst = max(
                worst,
                largest_difference([result.losses[k] for k in sorted(result.losses)], expected),
            )
            for i, child in enumerate(children):
                ours = [
                    tensor_of(array) for array in (*result.weights[i], *result.buffers.get(i, ()))
                ]
                theirs = [p.detach() for p in child.parameters() if p.requires_grad] + list(
                    child.buffers()
                )
                for a, b in zip(ours, theirs, strict=True):
                    weights = max(weights, float((a.double() - b.double()).abs().max()))
    return worst, weights


def main(words: list[str]) -> None:
    """Prints the table, with `--torch` as rows of a table in Markdown."""
    torch.set_num_threads(1)
    if words == ["--torch"]:
        from tests.agileml.pipeline.model.torch_pipelining import losses_or_error

        for construct in CONSTRUCTS:
            losses, _ = differences(construct)
            theirs = losses_or_error(construct.name, "Schedule1F1B")
            if not isinstance(theirs, str):
                theirs = f"{largest_difference(theirs, plain_torch(construct)[0]):.1e}"
            print(f"| {construct.name} | {losses:.1e} | {theirs} |", flush=True)
        return
    print(f"{'construct':36} {'losses':>9} {'weights':>9}")
    for construct in CONSTRUCTS:
        losses, weights = differences(construct)
        print(f"{construct.name:36} {losses:9.1e} {weights:9.1e}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1:])
