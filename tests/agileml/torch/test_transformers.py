"""`from_transformers` against a Trainer's own `train` in one process."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import agileml
from agileml import reference
from agileml.errors import AgileMLError, BadTrainer
from agileml.params.layout import Params
from agileml.reference import model_digest
from agileml.torch import from_transformers
from agileml.torch.transformers import TransformersTrainer

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SPOTCTL_TEST_TRAINERS") != "all", reason="make trainers runs it"
    ),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("transformers")

from transformers import EarlyStoppingCallback, Trainer

from tests.agileml.torch.transformers_models import (
    Kinds,
    Penalized,
    classifier,
    language_model,
    trainer,
)

TIMES = ("runtime", "per_second", "total_flos", "preparation_time")
"""Logged values about how long something took."""


def in_order(trainer: TransformersTrainer) -> Params:
    """The model after the whole training, part by part."""
    return reference.run(trainer, trainer.clocks, seed=3)


def compare(
    make: Callable[[], Any], parts: int = 4, within: float = 1e-5, trained: Any = in_order
) -> TransformersTrainer:
    """The weights and the whole history."""
    plain = make()
    plain.train()
    again = make()
    ours = from_transformers(again, parts=parts)
    ours.check_start(3)
    model = trained(ours)
    found = ours.state_dict(model)
    # AdamW makes steps of gradients that are nothing but rounding, such as that of an attention's
    # keys' bias.
    for name, values in plain.model.state_dict().items() if plain.args.optim == "sgd" else ():
        assert torch.allclose(found[name], values, rtol=within, atol=within / 10), name
    rows = [{"step": row.step, "epoch": row.epoch, **row.values} for row in ours.logged(model)]
    history = [
        {name: value for name, value in row.items() if not name.endswith(TIMES)}
        for row in plain.state.log_history
    ]
    assert [row.keys() for row in rows] == [row.keys() for row in history]
    for row, other in zip(rows, history, strict=True):
        assert row == pytest.approx(other, rel=within, abs=within / 10)
    return ours


CASES: dict[str, dict[str, Any]] = {
    "two epochs": {"eval_strategy": "epoch"},
    "in whole batches": {"per_device_train_batch_size": 11, "num_train_epochs": 3},
    "momentum": {
        "optim": "sgd",
        "optim_args": "momentum=0.9",
        "learning_rate": 0.1,
        "max_grad_norm": 0,
    },
    "accumulation": {
        "gradient_accumulation_steps": 3,
        "max_grad_norm": 0.3,
        "logging_steps": 2,
        "warmup_steps": 2,
    },
    "cosine, by steps": {
        "lr_scheduler_type": "cosine",
        "eval_strategy": "steps",
        "eval_steps": 3,
        "max_steps": 11,
    },
    "classifier": {
        "model": classifier,
        "data": Kinds,
        "gradient_accumulation_steps": 2,
        "eval_strategy": "epoch",
    },
    "own loss": {"kind": Penalized, "gradient_accumulation_steps": 3},
    "label smoothing": {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2},
}


@pytest.mark.parametrize("case", CASES)
def test_weights_and_history_are_those_of_train(case: str, tmp_path: Path) -> None:
    compare(partial(trainer, tmp_path, **CASES[case]))


def test_dropout_is_refused_unless_it_may_be_drawn_anew(tmp_path: Path) -> None:
    def dropping() -> Any:
        model: Any = language_model()
        model.transformer.drop.p = 0.3
        return model

    with pytest.raises(BadTrainer, match=r"draws random numbers .dropout.*redraw=True"):
        from_transformers(trainer(tmp_path, dropping)).check_start(1)
    assert "without dropout" in from_transformers(
        trainer(tmp_path, dropping), redraw=True
    ).check_start(1)


@pytest.mark.parametrize("engine", ["sim", "local"])
def test_nodes_that_are_killed_and_join_change_no_bit(engine: str, tmp_path: Path) -> None:
    given = from_transformers(
        trainer(tmp_path, gradient_accumulation_steps=2, eval_strategy="epoch")
    )
    expected = reference.run(given, given.clocks, seed=0, partitions=None)
    chaos = "at clock 2 kill 1; at clock 4 kill 1; at clock 6 join 1"
    result = agileml.train(given, nodes="1+2", engine=engine, deterministic=True, chaos=chaos)
    assert (result.clocks, result.failures) == (given.clocks, 2)
    assert model_digest(result.model) == model_digest(expected)
    assert given.logged(result.model) == given.logged(expected)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"compute_metrics": print}, "compute_metrics needs all predictions"),
        (
            {"callbacks": [EarlyStoppingCallback()]},
            "EarlyStoppingCallback.on_evaluate of a callback would",
        ),
        (
            {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"},
            "ReduceLROnPlateau depends on",
        ),
        ({"optim": "adafactor"}, "Adafactor"),
        (
            {"kind": type("Own", (Trainer,), {"training_step": print})},
            "its training_step would not be called",
        ),
    ],
)
def test_what_is_not_carried_is_refused_by_name(
    given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(AgileMLError, match=said):
        from_transformers(trainer(tmp_path, **given)).check_start(1)
