"""The training that every system does, and how it reports: a network, samples in a fixed order, and
datagrams.

Imports torch and nothing of this project, as it also runs in the environment of another system.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

WIDTHS = {"19k": 68, "1m": 564, "16m": 2290}
"""The width of the hidden layers, by the number of parameters of the network."""

NODES = 3
BATCH = 192
"""Samples of a step of the whole job."""

FEATURES, CLASSES = 64, 10
SAMPLES = 431 * BATCH
"""Too many for any network to memorize within a cell, so that its final loss tells whether it was
the same training."""

JUDGED = 43 * BATCH
"""The samples of the loss."""

RECORDER, FOLDER, NODE = "GOODPUT_RECORDER", "GOODPUT_FOLDER", "GOODPUT_NODE"
"""The variables that say where commits go, the folder that the processes of a cell share, and the
number of a node."""

WARNED = "warned-"
"""Files with this prefix, followed by the number of a node and that of its start, are warnings."""

Batch = tuple[torch.Tensor, torch.Tensor]


def network(size: str) -> nn.Sequential:
    """Five layers, with the same weights in every process."""
    torch.manual_seed(0)
    widths = [FEATURES, *[WIDTHS[size]] * 4, CLASSES]
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def dataset() -> TensorDataset:
    """Points with the labels of a network that is not trained."""
    torch.manual_seed(1)
    points = torch.randn(SAMPLES, FEATURES)
    teacher = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, CLASSES))
    return TensorDataset(points, teacher(points).argmax(1))


def share(data: TensorDataset, step: int, number: int, of: int) -> Batch:
    """The share of one of several nodes in the batch of a step, counted from 1."""
    first, length = (step - 1) * BATCH % SAMPLES, BATCH // of
    points, labels = data.tensors
    chosen = slice(first + number * length, first + (number + 1) * length)
    return points[chosen], labels[chosen]


def objective(module: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy."""
    points, labels = batch
    return nn.functional.cross_entropy(module(points), labels)


def optimizer(module: nn.Module) -> torch.optim.AdamW:
    """AdamW, whose state is twice as large as the parameters."""
    return torch.optim.AdamW(module.parameters(), lr=3e-4)


def whole_loss(module: nn.Module) -> float:
    """The mean loss over the first samples."""
    points, labels = dataset().tensors
    with torch.no_grad():
        return float(objective(module, (points[:JUDGED], labels[:JUDGED])))


class Reporter:
    """Tells the recorder what is committed. The supervisor ends a cell, and warns nodes, by files
    in a folder.
    """

    def __init__(self) -> None:
        host, port = os.environ[RECORDER].split(":")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect((host, int(port)))
        self.folder = Path(os.environ[FOLDER])

    def commit(
        self, step: int, samples: int = BATCH, part: str = "all", redone: int = 0, again: int = 0
    ) -> None:
        """A step is a part of the model now; `part` computed these samples, and `redone` counts
        those in vain, `again` those of steps that were committed before, lost, and are made
        again."""
        self._send(step=step, samples=samples, part=part, redone=redone, again=again)

    def final(self, step: int, module: nn.Module) -> None:
        """The loss of the model after the last step."""
        self._send(step=step, loss=whole_loss(module))

    def is_over(self) -> bool:
        """Whether the cell has ended."""
        return (self.folder / "end").exists()

    def warned(self) -> set[str]:
        """The nodes that are about to be killed."""
        return {path.name.removeprefix(WARNED) for path in self.folder.glob(f"{WARNED}*")}

    def _send(self, **fields: object) -> None:
        try:
            self._socket.send(json.dumps(fields).encode())
        except ConnectionRefusedError:
            sys.exit("the recorder has ended")


def undisturbed(size: str, steps: list[int]) -> list[float]:
    """The losses after these steps, in rising order, of a training on one process."""
    module, data = network(size), dataset()
    optimizing, losses, done = optimizer(module), list[float](), 0
    for last in steps:
        for step in range(done + 1, last + 1):
            optimizing.zero_grad()
            torch.autograd.backward(objective(module, share(data, step, 0, 1)))
            optimizing.step()
        done = last
        losses.append(whole_loss(module))
    return losses


if __name__ == "__main__":
    print(json.dumps(undisturbed(sys.argv[1], list(map(int, sys.argv[2:])))))
