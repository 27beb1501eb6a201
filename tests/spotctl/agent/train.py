"""A training script as a user writes it: plain Python, shuffled data, a model of a few weights.

`python train.py WORKDIR EPOCHS STEP_SECONDS SAVE_EVERY_SECONDS`. Ends with `result.json` in the
working directory.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from spotctl.agent import Checkpoints, LeaseIterator
from spotctl.agent.lease.job_lease import IteratorOptions


class Loader:
    """Twenty batches of four numbers, in an order that the epoch seeds."""

    def __init__(self) -> None:
        self.random = random.Random()

    def seed(self, epoch: int) -> None:
        self.random.seed(epoch)

    def __iter__(self) -> Iterator[list[float]]:
        rows = [[i + j / 10 for j in range(4)] for i in range(20)]
        self.random.shuffle(rows)
        return iter(rows)


def main(workdir: Path, epochs: int, step_seconds: float, save_every: float) -> None:
    weights = [0.0] * 4
    seen: list[list[float]] = []
    noise = random.Random(7)

    def save(folder: Path) -> None:
        state = [weights, seen, noise.getstate()]
        (folder / "model.json").write_text(json.dumps(state))
        (folder / "ballast").write_bytes(os.urandom(1 << 16))

    def load(folder: Path) -> None:
        state = json.loads((folder / "model.json").read_text())
        weights[:], seen[:] = state[0], state[1]
        version, internal, gauss = state[2]
        noise.setstate((version, tuple(internal), gauss))

    loader = Loader()
    options = IteratorOptions(save_every_seconds=save_every, on_epoch=loader.seed)
    batches = LeaseIterator(
        loader,
        load=load,
        save=save,
        checkpoints=Checkpoints(workdir / "checkpoints"),
        options=options,
    )
    for epoch in batches.epochs(epochs):
        for batch in batches:
            time.sleep(step_seconds)
            for i, value in enumerate(batch):
                weights[i] = 0.9 * weights[i] + value + noise.random()
            seen.append([epoch, batch[0]])
        weights[0] /= 2
    (workdir / "result.json").write_text(json.dumps([weights, seen]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
