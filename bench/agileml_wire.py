"""Parameters and updates that travel in 16 bits, next to the same trainings in 32: bytes, time, and
loss.

`python -m bench.agileml_wire` prints it. Bytes, losses and virtual times are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from agileml.params import FULL, WIRES
from agileml.torch import TorchModule
from agileml.trainer import Trainer
from agileml.training import train
from bench import torch_module
from bench.harness import Row, shown, table

NODES = "1+3"
CLOCKS = 40
SLOW = 12.5e6
"""Bytes a second of a network card, in each direction: 100 Mbit/s."""


@dataclass(frozen=True)
class Measured:
    """A training with one kind of numbers on the wire."""

    bytes_per_clock: float
    seconds_per_clock: float
    loss: float


def _network() -> Trainer:
    return TorchModule(
        torch_module.net,
        torch_module.data,
        torch_module.objective,
        torch_module.optimizer,
        batch_size=64,
        parts=4,
    )


TRAINERS: Mapping[str, Callable[[], Trainer]] = {
    "matrix factorization": TrainerSource(
        "mf", {"users": 2000, "items": 500, "ratings": 20_000}
    ).load,
    "logistic regression": TrainerSource("mlr", {}).load,
    "a network of torch": _network,
}


def _played(trainer: Trainer, wire: str) -> Measured:
    log: list[Iteration] = []
    engine = SimulatedEngine(Machines(network=Network(SLOW)))
    trained = train(
        trainer, NODES, engine, clocks=CLOCKS, deterministic=True, wire=wire, listener=log.append
    )
    assert trained.loss is not None
    moved = [iteration.sums.pushed + iteration.sums.pulled for iteration in log]
    # The first pass is made to learn what is read.
    return Measured(median(moved), median([iteration.seconds for iteration in log]), trained.loss)


def run() -> str:
    """Measures and returns the section."""
    rows = []
    for name, made in TRAINERS.items():
        trained = {wire: _played(made(), wire) for wire in WIRES}
        full = trained.pop(FULL)
        for wire, half in trained.items():
            for what, here, peer, shape in (
                ("bytes a clock", half.bytes_per_clock, full.bytes_per_clock, _kib),
                ("time of a clock", half.seconds_per_clock, full.seconds_per_clock, shown),
                (f"loss after {CLOCKS} clocks", half.loss, full.loss, "{:.5f}".format),
            ):
                rows.append(
                    Row(f"{wire}, {name}: {what}", shape(here), shape(peer), f"{here / peer:.4f}")
                )
    return table(
        "AgileML: parameters and updates in 16 bits",
        f"Next to each training, the same one with {FULL} on the wire. {NODES} nodes in virtual "
        "time,"
        f" cards of 100 Mbit/s, deterministic; bytes and times are medians of {CLOCKS} clocks.",
        rows,
    )


def _kib(count: float) -> str:
    return f"{count / 2**10:.1f} KiB"


if __name__ == "__main__":
    print(run())
