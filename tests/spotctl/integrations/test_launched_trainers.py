"""Whole jobs of frameworks' trainers on the local market, whose nodes are killed and replaced.

No process calls the framework's own loop, and a job gives what that loop gives in one process.
`make trainers` runs these.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.spotctl.command_line import spotctl

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SPOTCTL_TEST_TRAINERS") != "all", reason="make trainers runs it"
    ),
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("few_windows"),
]

MODELS = Path(__file__).parents[2] / "agileml" / "torch"

WATCHED = """
import os, signal, sys, time
from pathlib import Path

FOLDER, KILLED = Path(os.environ["WATCHED"]), (8, 16)
IS_NODE = "agileml.join" in sys.orig_argv

def watch(step, samples):
    if not IS_NODE:
        return
    if step in KILLED and "--reliable" not in sys.argv:
        try:
            (FOLDER / f"killed-{step}").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    with open(FOLDER / "samples", "a") as file:
        file.write(f"{os.getpid()} {samples}\\n")
    if step > KILLED[-1] and len({line.split()[0] for line in open(FOLDER / "samples")}) < 4:
        time.sleep(0.3)  # until another node has joined

def refused(*_, **__):
    raise AssertionError("the framework's own loop was called")
"""
"""Notes who computes how many samples, and kills two of the nodes that may be evicted."""

LIGHTNING = """
import lightning.pytorch as pl
from lightning.pytorch.loops import fit_loop, evaluation_loop, training_epoch_loop
from lightning_models import Classifier, Data

for kind in (fit_loop._FitLoop, evaluation_loop._EvaluationLoop, training_epoch_loop._TrainingEpochLoop):
    kind.run = refused

class Watched(Classifier):
    def training_step(self, batch, batch_idx):
        watch(self.global_step, len(batch[0]))
        return super().training_step(batch, batch_idx)

def make():
    pl.seed_everything(7, verbose=False)
    given = {"max_epochs": 10, "gradient_clip_val": 0.5, "log_every_n_steps": 3}
    return Watched(), Data(), given | {"accelerator": "cpu", "enable_checkpointing": False, "parts": 12}
"""

TRANSFORMERS = """
from transformers import Trainer
from transformers_models import trainer
from agileml.torch import from_transformers

Trainer.train = Trainer.evaluate = Trainer._inner_training_loop = refused

class Watched(Trainer):
    def compute_loss(self, model, inputs, *given, **named):
        if model.training:
            watch(self.state.global_step, len(inputs["labels"]))
        return super().compute_loss(model, inputs, *given, **named)

def make():
    given = {"optim": "sgd", "optim_args": "momentum=0.9", "learning_rate": 0.1, "eval_strategy": "epoch"}
    given |= {"num_train_epochs": 10, "logging_steps": 5}
    return from_transformers(trainer(os.environ["WATCHED"], kind=Watched, **given), parts=6)
"""

SCRIPTS = {"lightning": LIGHTNING, "transformers": TRANSFORMERS}

JOB = """
name: watched
kind: agileml
trainer: {{{framework}: "train:make"}}
env: {{WATCHED: {folder}}}
resources:
  clouds: [local]
  types: [c4.2xlarge]
  machines: 2..2
  reliable: {{machines: 1, type: m3.medium}}
strategy: proteus
local: {{speed: 60, start: 2026-01-15T00:10:00Z}}
"""


def launched(framework: str, folder: Path) -> dict[str, Any]:
    """The model of a job on three nodes, of which two were killed and replaced."""
    job = folder / "job"
    job.mkdir()
    shutil.copy(MODELS / f"{framework}_models.py", job)
    (job / "train.py").write_text(WATCHED + SCRIPTS[framework])
    (job / "job.yaml").write_text(JOB.format(framework=framework, folder=folder))
    ended = spotctl("launch", job / "job.yaml", "--yes", "--json").json
    assert (ended["outcome"], ended["updates_lost"], ended["updates_doubled"]) == ("done", 0, 0), (
        ended["message"]
    )
    assert {place.name for place in folder.glob("killed-*")} == {"killed-8", "killed-16"}
    check_shares(folder / "samples")
    return dict(np.load(ended["model"]))


def check_shares(computed: Path) -> None:
    """At least four nodes, each of which computed a quarter of the samples, or more, while it was
    there.
    """
    rows = [tuple(map(int, line.split())) for line in computed.read_text().splitlines()]
    nodes = {node for node, _ in rows}
    assert len(nodes) >= 4
    for node in nodes:
        first = next(place for place, row in enumerate(rows) if row[0] == node)
        last = max(place for place, row in enumerate(rows) if row[0] == node)
        meanwhile = rows[first : last + 1]
        share = sum(size for each, size in meanwhile if each == node) / sum(
            size for _, size in meanwhile
        )
        assert share >= 0.25, (node, share)


@pytest.mark.slow
def test_a_launched_lightning_job_gives_what_fit_gives(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    from tests.agileml.torch.test_lightning import compare, seeded

    model = launched("lightning", tmp_path)
    given = {"max_epochs": 10, "gradient_clip_val": 0.5, "log_every_n_steps": 3}
    compare(seeded, given, tmp_path, parts=12, trained=lambda _: model)


@pytest.mark.slow
def test_a_launched_transformers_job_gives_what_train_gives(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.agileml.torch.test_transformers import compare
    from tests.agileml.torch.transformers_models import trainer

    model = launched("transformers", tmp_path)
    given: dict[str, Any] = {"optim": "sgd", "optim_args": "momentum=0.9", "learning_rate": 0.1}
    given |= {"num_train_epochs": 10, "logging_steps": 5, "eval_strategy": "epoch"}
    compare(partial(trainer, tmp_path, **given), parts=6, trained=lambda _: model)
