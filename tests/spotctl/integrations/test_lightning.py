"""The hooks with the real libraries: evicted at several steps, a training ends with the weights of
an undisturbed one.

`make trainers` runs these. The libraries take 180 MB and seconds to import, so other runs of the
tests leave them out.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from spotctl.agent.layout import LEASE_VARIABLE
from spotctl.agent.lease.job_lease import LeaseEnded
from spotctl.agent.lease.lease_files import LeaseGrantor

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("SPOTCTL_TEST_TRAINERS") != "all", reason="make trainers runs it"
    ),
    pytest.mark.filterwarnings("default"),
]

Start = Callable[[Path, int | None, int], nn.Module]


def trained(
    folder: Path, start: Start, evicted: list[int], monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    """The weights after starts that SIGTERM ends before these steps, and a last one that is left
    alone.
    """
    LeaseGrantor(folder / "lease").begin(100_000.0)
    monkeypatch.setenv(LEASE_VARIABLE, str(folder / "lease"))
    for number, step in enumerate(evicted):
        with pytest.raises(LeaseEnded, match="SIGTERM"):
            start(folder, step, number)
    net = start(folder, None, len(evicted))
    return torch.cat([weights.detach().flatten() for weights in net.parameters()])


@pytest.mark.parametrize(
    ("accumulated", "evicted"), [(1, [3, 5, 12]), (2, [3, 5, 7]), (3, [2, 4, 7])]
)
def test_a_lightning_trainer_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accumulated: int, evicted: list[int]
) -> None:
    """Also if it is evicted at the end of an epoch, with dropout, a schedule per epoch and a
    validation.
    """
    pl = pytest.importorskip("lightning.pytorch")
    from spotctl.integrations.lightning import ResumableLoader, SpotCallback

    class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.3), nn.Linear(8, 1))

        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def validation_step(self, batch: list[torch.Tensor]) -> None:
            self.net(batch[0])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]

    def start(folder: Path, evict_before: int | None, _: int) -> nn.Module:
        class Evicted(pl.Callback):  # type: ignore[misc, name-defined]
            def on_train_batch_start(self, trainer: Any, *_: object) -> None:
                if trainer.global_step + 1 == evict_before:
                    signal.raise_signal(signal.SIGTERM)

        torch.manual_seed(0)
        points = torch.randn(50, 2)
        data = TensorDataset(points, points.sum(1, keepdim=True))
        spot, net = SpotCallback(folder / "kept"), Net()
        trainer = pl.Trainer(
            max_epochs=4,
            callbacks=[Evicted(), spot],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            accelerator="cpu",
            accumulate_grad_batches=accumulated,
        )
        checked = ResumableLoader(data, batch_size=25)
        trainer.fit(
            net,
            ResumableLoader(data, batch_size=10, shuffle=True),
            checked,
            ckpt_path=spot.newest(),
        )
        return net

    straight = trained(tmp_path / "straight", start, [], monkeypatch)
    assert torch.equal(trained(tmp_path / "evicted", start, evicted, monkeypatch), straight)
    (kept,) = (tmp_path / "evicted" / "kept").iterdir()
    assert kept.name == f"step-{4 * -(-5 // accumulated)}.ckpt", (
        "the trained network is among the results"
    )
    assert torch.equal(trained(tmp_path / "evicted", start, [], monkeypatch), straight), (
        "a fit that is over goes on"
    )
