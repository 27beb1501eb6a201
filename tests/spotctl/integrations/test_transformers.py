"""The hook for the Hugging Face Trainer."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.spotctl.integrations.test_lightning import trained

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SPOTCTL_TEST_TRAINERS") != "all", reason="make trainers runs it"
    ),
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize(("accumulated", "evicted"), [(1, [3, 5, 12]), (2, [2, 3, 7])])
def test_a_hugging_face_trainer_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulated: int, evicted: list[int]
) -> None:
    """Also with an evaluation after each epoch, and the best model loaded at the end."""
    transformers = pytest.importorskip("transformers")
    from spotctl.integrations.transformers import SpotCallback

    def start(folder: Path, evict_before: int | None, number: int) -> nn.Module:
        class Evicted(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_step_begin(self, _: object, state: Any, *__: object, **___: object) -> None:
                if state.global_step + 1 == evict_before:
                    signal.raise_signal(signal.SIGTERM)

        torch.manual_seed(0)
        rows = [{"input_ids": row, "labels": row} for row in torch.randint(20, (50, 8))]
        shape = {"vocab_size": 20, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
        config = transformers.GPT2Config(**shape, bos_token_id=None, eos_token_id=None)
        net: nn.Module = transformers.GPT2LMHeadModel(config)
        arguments = transformers.TrainingArguments(
            output_dir=str(folder / f"out-{number}"),
            num_train_epochs=4,
            per_device_train_batch_size=10,
            gradient_accumulation_steps=accumulated,
            save_strategy="epoch",
            eval_strategy="epoch",
            load_best_model_at_end=True,
            save_total_limit=2,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        spot = SpotCallback(folder / "kept")
        callbacks = [Evicted(), spot]
        trainer = transformers.Trainer(
            net, arguments, train_dataset=rows, eval_dataset=rows[:10], callbacks=callbacks
        )
        trainer.train(resume_from_checkpoint=spot.newest())
        return net

    straight = trained(tmp_path / "straight", start, [], monkeypatch)
    assert torch.equal(trained(tmp_path / "evicted", start, evicted, monkeypatch), straight)
