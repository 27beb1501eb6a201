"""`from_lightning` against Lightning's own `fit` in one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import agileml
from agileml import reference
from agileml.errors import BadTrainer
from agileml.params.layout import Params
from agileml.reference import model_digest
from agileml.torch import from_lightning
from agileml.torch.lightning import LightningTrainer

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SPOTCTL_TEST_TRAINERS") != "all", reason="make trainers runs it"
    ),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("lightning")

import lightning.pytorch as pl

from tests.agileml.torch.lightning_models import (
    Classifier,
    Data,
    Dropping,
    Normalizing,
    Reading,
    Recorder,
    SeveralChecks,
    loaders,
)

CASES: dict[str, dict[str, Any]] = {
    "two epochs": {"max_epochs": 2, "log_every_n_steps": 1},
    "accumulation and clipping": {
        "max_epochs": 2,
        "log_every_n_steps": 2,
        "accumulate_grad_batches": 3,
        "gradient_clip_val": 0.2,
    },
}


QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}


def in_order(trainer: LightningTrainer) -> Params:
    """The model after the whole training, part by part."""
    return reference.run(trainer, trainer.clocks, seed=3)


def compare(
    make: Any,
    arguments: dict[str, Any],
    tmp_path: Path,
    parts: int = 4,
    within: float = 1e-5,
    trained: Any = in_order,
) -> LightningTrainer:
    """The weights and everything that is logged."""
    module, *data = make()
    recorder = Recorder()
    usual = {"accelerator": "cpu", "default_root_dir": tmp_path, **QUIET}
    trainer = pl.Trainer(**{**usual, "logger": recorder, **arguments})
    trainer.fit(module, *data)
    module_again, *data_again = make()
    ours = from_lightning(module_again, *data_again, parts=parts, **{**usual, **arguments})
    ours.check_start(3)
    model = trained(ours)
    found = ours.state_dict(model)
    for name, values in module.state_dict().items():
        assert torch.allclose(found[name], values, rtol=within, atol=within / 10), name
    if trainer.loggers != [recorder]:
        return ours
    rows = [(row.step, dict(row.values)) for row in ours.logged(model)]
    expected = [
        (step, {name: value for name, value in row.items() if name != "epoch"})
        for step, row in recorder.rows
    ]
    assert [step for step, _ in rows] == [step for step, _ in expected]
    for (step, row), (_, other) in zip(rows, expected, strict=True):
        assert row.keys() == other.keys(), step
        for name, value in other.items():
            assert row[name] == pytest.approx(value, rel=within, abs=within / 10), (step, name)
    return ours


def seeded(kind: Callable[..., Any] = Classifier, *data: Any) -> tuple[Any, ...]:
    pl.seed_everything(7, verbose=False)
    return kind(), *(data or (Data(),))


@pytest.mark.parametrize("case", CASES)
def test_weights_and_logs_are_those_of_fit(case: str, tmp_path: Path) -> None:
    compare(seeded, CASES[case], tmp_path)


@pytest.mark.parametrize(
    "sampler", ["", "whole", "generator", "weighted", "drawn", "workers", "dropped"]
)
def test_samples_come_in_the_order_of_the_loader(sampler: str, tmp_path: Path) -> None:
    def made() -> tuple[Any, ...]:
        pl.seed_everything(7, verbose=False)
        train, checks = loaders(sampler)
        return SeveralChecks(), train, checks

    compare(made, {"max_epochs": 3, "log_every_n_steps": 4, "val_check_interval": 3}, tmp_path)


def test_a_step_knows_where_it_is(tmp_path: Path) -> None:
    compare(
        partial(seeded, Reading),
        {"max_epochs": 2, "log_every_n_steps": 1, "accumulate_grad_batches": 2},
        tmp_path,
    )


def test_batch_normalization_is_that_of_a_whole_batch(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "max_epochs": 2,
        "log_every_n_steps": 1,
        "accumulate_grad_batches": 2,
    }
    compare(partial(seeded, Normalizing), arguments, tmp_path, parts=1)
    with pytest.raises(
        BadTrainer, match=r"batch normalization computes means over a batch.*use parts=1"
    ):
        from_lightning(*seeded(Normalizing), **arguments).check_start(1)


def test_dropout_is_refused_unless_it_may_be_drawn_anew() -> None:
    with pytest.raises(BadTrainer, match=r"draws random numbers .dropout.*redraw=True"):
        from_lightning(*seeded(Dropping), max_epochs=2).check_start(1)
    trainer = from_lightning(*seeded(Dropping), max_epochs=2, redraw=True)
    assert "without dropout" in trainer.check_start(1)
    assert len(trainer.logged(reference.run(trainer, trainer.clocks, seed=1))) == 12


@pytest.mark.parametrize("engine", ["sim", "local"])
def test_nodes_that_are_killed_and_join_change_no_bit(engine: str) -> None:
    trainer = from_lightning(
        *seeded(), max_epochs=4, log_every_n_steps=1, accumulate_grad_batches=2
    )
    expected = reference.run(trainer, trainer.clocks, seed=0, partitions=None)
    chaos = "at clock 3 kill 1; at clock 6 kill 1; at clock 9 join 1"
    result = agileml.train(trainer, nodes="1+2", engine=engine, deterministic=True, chaos=chaos)
    assert (result.clocks, result.failures) == (trainer.clocks, 2)
    assert model_digest(result.model) == model_digest(expected)
    assert trainer.logged(result.model) == trainer.logged(expected)


def test_each_step_is_reported_with_its_number() -> None:
    told: list[tuple[int, dict[str, float]]] = []

    def on_step(step: int, values: Mapping[str, float]) -> None:
        told.append((step, dict(values)))

    trainer = from_lightning(*seeded(), max_epochs=2, log_every_n_steps=1, on_step=on_step)
    model = reference.run(trainer, trainer.clocks, seed=1)
    steps = [values for values in told if "val_loss" not in values[1]]
    checks = [values for values in told if "val_loss" in values[1]]
    logged = [row for row in trainer.logged(model) if "batch" in row.values]
    assert [step for step, _ in steps] == list(range(1, 17))
    assert [step for step, _ in checks] == [8, 16]
    assert [values for _, values in steps] == [dict(row.values) for row in logged]
    whole = [dict(row.values) for row in trainer.logged(model) if "val_loss" in row.values]
    assert [values for _, values in checks] == whole
