"""Hugging Face Trainers for the tests of `from_transformers`, as users write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

WORDS = 24


class Counting(Dataset[Any]):
    """Rows of numbers that go up by the same amount, some of which are not to be learned."""

    def __init__(self, rows: int = 44, length: int = 8) -> None:
        drawn = torch.Generator().manual_seed(3)
        first, by = (
            torch.randint(WORDS, (rows, 1), generator=drawn),
            torch.randint(1, 5, (rows, 1), generator=drawn),
        )
        self.rows = (first + by * torch.arange(length)) % WORDS
        # A different number of labels in each row.
        self.labels = self.rows.clone()
        self.labels[torch.rand(self.rows.shape, generator=drawn) < 0.3] = -100

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[row], "labels": self.labels[row]}


class Kinds(Counting):
    """Rows with one of three kinds each."""

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[row], "labels": (self.rows[row][0] * 7) % 3}


def language_model() -> nn.Module:
    """A small GPT-2 without dropout."""
    shape = {"vocab_size": WORDS, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    without = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(**shape, **without, bos_token_id=None, eos_token_id=None)
    made: nn.Module = GPT2LMHeadModel(config)
    return made


def classifier() -> nn.Module:
    """A small BERT without dropout."""
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,
    )
    made: nn.Module = BertForSequenceClassification(config)
    return made


class Penalized(Trainer):  # type: ignore[misc]
    """With a loss of its own."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        loss, outputs = super().compute_loss(
            model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        share = (inputs["labels"][..., 1:] != -100).sum() / num_items_in_batch
        loss = loss + 0.01 * share * sum(weight.square().sum() for weight in model.parameters())
        return (loss, outputs) if return_outputs else loss


USUAL: dict[str, Any] = {
    "num_train_epochs": 2,
    "per_device_train_batch_size": 6,
    "per_device_eval_batch_size": 5,
    "learning_rate": 5e-3,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
    "use_cpu": True,
}


def trainer(
    folder: Any,
    model: Any = language_model,
    kind: Any = Trainer,
    data: Any = Counting,
    **given: Any,
) -> Any:
    """A Trainer that is about to train."""
    set_seed(5)
    of_trainer = {
        "callbacks",
        "compute_loss_func",
        "compute_metrics",
        "data_collator",
        "optimizers",
    }
    with_trainer = {name: given.pop(name) for name in of_trainer & given.keys()}
    arguments = TrainingArguments(output_dir=str(folder), **{**USUAL, **given})
    rows = data()
    checks = torch.utils.data.Subset(rows, range(13))
    return kind(model(), arguments, train_dataset=rows, eval_dataset=checks, **with_trainer)
