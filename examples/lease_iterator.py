"""A training loop that moves between machines: `LeaseIterator` wraps its data loader.

It saves checkpoints, ends the process in time when the job has to move, and resumes at the batch
where it stopped.
"""

import json
import tempfile
from pathlib import Path

from spotctl.agent import Checkpoints, LeaseIterator

model = {"sum": 0}


def save(folder: Path) -> None:
    (folder / "model.json").write_text(json.dumps(model))


def load(folder: Path) -> None:
    model.update(json.loads((folder / "model.json").read_text()))


with tempfile.TemporaryDirectory() as folder:
    batches = LeaseIterator(range(10), load=load, save=save, checkpoints=Checkpoints(Path(folder)))
    for _ in batches.epochs(3):
        for batch in batches:
            model["sum"] += batch

    assert model["sum"] == 3 * sum(range(10))

    # Another process, with the same folder: nothing is left to do.
    resumed = LeaseIterator(range(10), load=load, save=save, checkpoints=Checkpoints(Path(folder)))
    assert list(resumed.epochs(3)) == []

print(model)
