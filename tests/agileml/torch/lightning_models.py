"""Lightning modules and data for the tests of `from_lightning`, as users write them."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers.logger import Logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, CHECKED = 88, 40


class Classifier(pl.LightningModule):  # type: ignore[misc]
    """Logs a loss by step and by epoch, and an accuracy; two schedules, one by step and one by
    epoch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(numbers)
        return scores

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        numbers, kinds = batch
        scores = self(numbers)
        loss = nn.functional.cross_entropy(scores, kinds)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log_dict(
            {
                "train_accuracy": (scores.argmax(1) == kinds).float().mean(),
                "batch": float(batch_idx),
            }
        )
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        numbers, kinds = batch
        scores = self(numbers)
        self.log("val_loss", nn.functional.cross_entropy(scores, kinds), prog_bar=True)
        self.log(
            "val_right",
            (scores.argmax(1) == kinds).float().sum(),
            reduce_fx="sum",
            on_step=batch_idx >= 0,
        )

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=4)
        drops = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        return [optimizer], [{"scheduler": warm, "interval": "step"}, drops]


class Data(pl.LightningDataModule):  # type: ignore[misc]
    """Random numbers, of which `setup` makes a training set and a validation set."""

    def __init__(self, batch_size: int = 12) -> None:
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage: str) -> None:
        assert stage == "fit"
        numbers = torch.randn(SAMPLES + CHECKED, 4)
        kinds = (numbers[:, 0] * numbers[:, 1] > 0).long() + (numbers[:, 2] > 1).long()
        self.parts = torch.utils.data.random_split(
            TensorDataset(numbers, kinds), [SAMPLES, CHECKED]
        )

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.parts[0], self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.parts[1], self.batch_size)


class Recorder(Logger):  # type: ignore[misc]
    """Keeps what it is asked to log."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, dict[str, float]]] = []

    @property
    def name(self) -> str:
        return "recorder"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def log_metrics(self, metrics: Any, step: Any = None) -> None:
        self.rows.append((step, dict(metrics)))


class Normalizing(Classifier):
    """With batch normalization, and a layer that stays in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        # Without a bias that has no effect: its gradient is rounding, which AdamW makes large.
        first = nn.Linear(4, 16, bias=False)
        self.net = nn.Sequential(
            first, nn.BatchNorm1d(16), nn.Tanh(), nn.BatchNorm1d(16), nn.Linear(16, 3)
        )
        self.net[3].eval()


class Dropping(Classifier):
    """With dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.net.insert(1, nn.Dropout(0.5))


class Reading(Classifier):
    """Reads where it is in the training, and takes the epoch into its loss."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        assert batch_idx <= self.trainer.num_training_batches
        self.log("step", float(self.global_step), on_epoch=True)
        self.log(
            "first", batch[0][:, 0].max(), reduce_fx=torch.sum
        ) if self.current_epoch < 0 else None
        return {"loss": loss * (1 + 0.1 * self.current_epoch), "ignored": 1}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        steps = int(self.trainer.estimated_stepping_batches)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=steps)
        every = {
            "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9),
            "interval": "step",
            "frequency": 3,
        }
        return (
            {"optimizer": optimizer, "lr_scheduler": {"scheduler": cycle, "interval": "step"}}
            if steps
            else every
        )


class SeveralChecks(Classifier):
    """Two validation loaders, and values of each of their batches."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        del batch_idx
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1]) + dataloader_idx
        self.log("val_loss", loss, on_step=True, on_epoch=True)
        self.log(f"own_{dataloader_idx}", loss, add_dataloader_idx=False, batch_size=3)


def loaders(sampler: str = "") -> tuple[DataLoader[Any], list[DataLoader[Any]]]:
    """Loaders with a generator, a sampler or processes of their own, and two for validation."""
    data = Data()
    data.setup("fit")
    options: dict[str, Any] = {"shuffle": True}
    if sampler == "generator":
        options = {"shuffle": True, "generator": torch.Generator().manual_seed(5)}
    elif sampler == "weighted":
        options = {
            "sampler": torch.utils.data.WeightedRandomSampler(
                [1.0 + (i % 7) for i in range(SAMPLES)], 70
            )
        }
    elif sampler == "drawn":
        options = {
            "sampler": torch.utils.data.RandomSampler(
                data.parts[0], replacement=True, num_samples=50
            )
        }
    elif sampler == "workers":
        options = {"shuffle": True, "num_workers": 2}
    elif sampler == "dropped":
        options = {"shuffle": True, "drop_last": True}
    # With 11, the last batch is as large as the others.
    train = DataLoader(data.parts[0], 11 if sampler == "whole" else 12, **options)
    return train, [DataLoader(data.parts[1], 9), DataLoader(data.parts[0], 16, shuffle=True)]
