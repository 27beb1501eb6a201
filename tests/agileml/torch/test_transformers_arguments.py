"""Every argument of `TrainingArguments` with another value than the usual one.

What is accepted must give the history of `train`; the rest is refused by its name. The list is that
of the installed Transformers, so that a new argument is tested, too.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SPOTCTL_TEST_TRAINERS") != "all", reason="make trainers runs it"
    ),
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("transformers")

from accelerate import ParallelismConfig
from transformers import Trainer, TrainerCallback, TrainingArguments

from agileml.errors import AgileMLError
from agileml.torch import from_transformers, transformers_arguments
from agileml.torch.transformers_arguments import _SAMPLERS
from tests.agileml.torch.test_transformers import compare
from tests.agileml.torch.transformers_models import trainer

SEVERAL: dict[str, list[Any]] = {
    "activation_checkpointing": [True],
    "activation_checkpointing_kwargs": [{"use_reentrant": False}],
    "accelerator_config": [{"split_batches": True}],
    "bf16": [True],
    "data_seed": [11],
    "dataloader_multiprocessing_context": ["fork"],
    "dataloader_prefetch_factor": [3],
    "ddp_backend": ["gloo"],
    "ddp_bucket_cap_mb": [10],
    "debug": ["underflow_overflow"],
    "deepspeed": [{}],
    "eval_steps": [3],
    "eval_strategy": ["steps", "epoch"],
    "eval_delay": [1],
    "fsdp": ["full_shard"],
    "fsdp_config": [{"xla": False}],
    "gradient_checkpointing_kwargs": [{"use_reentrant": False}],
    "hub_strategy": ["end"],
    "include_for_metrics": [["inputs"]],
    "include_num_input_tokens_seen": [True],
    "label_names": [["labels"]],
    "learning_rate": [0.01],
    "length_column_name": ["rows"],
    "log_level": ["error"],
    "log_level_replica": ["error"],
    "logging_steps": [3, 0.2],
    "logging_strategy": ["epoch", "no"],
    "lr_scheduler_kwargs": [{"num_cycles": 0.3}],
    "lr_scheduler_type": ["cosine", "constant", "reduce_lr_on_plateau"],
    "max_steps": [7],
    "metric_for_best_model": ["loss"],
    "num_train_epochs": [1.5],
    "optim": ["sgd", "adamw_torch", "adafactor"],
    "optim_args": ["amsgrad=True"],
    "optim_target_modules": ["attn"],
    "output_dir": ["elsewhere"],
    "parallelism_config": [ParallelismConfig()],
    "report_to": ["none"],
    "save_strategy": ["epoch"],
    "train_sampling_strategy": ["sequential", "group_by_length"],
    "torch_compile_backend": ["eager"],
    "torch_compile_mode": ["default"],
    "trackio_static_space_id": ["x"],
    "warmup_steps": [3, 0.3],
}
"""For arguments whose other value does not follow from their type, some."""

NEEDS: dict[str, dict[str, Any]] = {
    "activation_checkpointing_kwargs": {"activation_checkpointing": True},
    "dataloader_multiprocessing_context": {"dataloader_num_workers": 1},
    "dataloader_persistent_workers": {"dataloader_num_workers": 1},
    "dataloader_prefetch_factor": {"dataloader_num_workers": 1},
    "eval_delay": {"eval_strategy": "epoch"},
    "eval_steps": {"eval_strategy": "steps"},
    "gradient_checkpointing_kwargs": {"gradient_checkpointing": True},
    "load_best_model_at_end": {"eval_strategy": "epoch", "save_strategy": "epoch"},
    "lr_scheduler_kwargs": {"lr_scheduler_type": "cosine"},
    "metric_for_best_model": {"eval_strategy": "epoch"},
}
"""Arguments that others need."""


def others(name: str, default: Any) -> list[Any]:
    """Values that are not the usual one."""
    if name in SEVERAL:
        return SEVERAL[name]
    if isinstance(default, bool) or default is None:
        return [not default]
    return [
        default * 2 + 1
        if isinstance(default, int)
        else default * 0.5 + 0.1
        if isinstance(default, float)
        else "x"
    ]


CASES = [
    (field.name, value)
    for field in fields(TrainingArguments)
    for value in others(field.name, field.default)
]


@pytest.mark.parametrize(
    ("name", "value"), CASES, ids=[f"{name}={value}"[:50] for name, value in CASES]
)
def test_an_argument_gives_what_train_gives_or_is_refused(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trainer, "init_hf_repo", lambda _: None)
    make = partial(
        trainer, tmp_path, **{"gradient_accumulation_steps": 2, **NEEDS.get(name, {}), name: value}
    )
    try:
        made = make()
    except (ImportError, TypeError, ValueError) as error:
        pytest.skip(f"Transformers refuses it: {error}"[:200])
    try:
        from_transformers(made)
    except AgileMLError as error:
        text = str(error)
        # Transformers sets the first two for the others.
        assert name in text or (name.startswith("torch_compile") and "torch_compile=True" in text)
        assert "\n" not in text
        return
    if value in {"adafactor", "reduce_lr_on_plateau"} if isinstance(value, str) else False:
        with pytest.raises(AgileMLError, match=r"Adafactor|ReduceLROnPlateau"):
            from_transformers(made).check_start(1)
        return
    compare(make, within=0.05 if name == "bf16" else 1e-5)


def test_an_argument_of_a_later_version_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("_CARRIED", "_WITHOUT_EFFECT"):
        known = getattr(transformers_arguments, table)
        monkeypatch.setattr(transformers_arguments, table, known - {"weight_decay", "run_name"})
    for name, value in {"weight_decay": 0.5, "run_name": "other"}.items():
        with pytest.raises(
            AgileMLError, match=rf"{name}=.* of TrainingArguments .* is not known to this version"
        ):
            from_transformers(trainer(tmp_path, **{name: value}))


METHODS = [
    name
    for name, _ in inspect.getmembers(Trainer, inspect.isfunction)
    if not name.startswith("_") or name in _SAMPLERS
]


@pytest.mark.parametrize("name", METHODS)
def test_an_own_method_is_called_as_in_train_or_refused(name: str, tmp_path: Path) -> None:
    def replaced(self: Any, *given: Any, **named: Any) -> Any:
        result = getattr(super(made, self), name)(*given, **named)
        return result * 2 if name == "compute_loss" and isinstance(result, torch.Tensor) else result

    made = type("Own", (Trainer,), {name: replaced})
    make = partial(trainer, tmp_path, kind=made, eval_strategy="epoch")
    said = refusal(make())
    if said:
        assert f"its {name} would not be called" in said
    else:
        compare(make)


def refusal(made: Any) -> str:
    """Why a Trainer is refused; empty if it is not."""
    try:
        from_transformers(made)
    except AgileMLError as error:
        return str(error)
    return ""


EVENTS = [name for name, _ in inspect.getmembers(TrainerCallback, inspect.isfunction)]


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_of_a_callback_is_not_for_train_or_refused(event: str, tmp_path: Path) -> None:
    called: list[str] = []
    callback = type("Own", (TrainerCallback,), {event: lambda *_, **__: called.append(event)})()
    made = trainer(tmp_path, callbacks=[callback], max_steps=1, save_strategy="steps", save_steps=1)
    said = refusal(made)
    if said:
        assert f"Own.{event} of a callback" in said
        return
    called.clear()
    made.train()
    assert called == []
