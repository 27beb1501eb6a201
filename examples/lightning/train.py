"""A classifier with Lightning: `SpotCallback` carries it through evictions, and `ResumableLoader`
to the very batch.
"""

import logging

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import TensorDataset

from spotctl.integrations.lightning import ResumableLoader, SpotCallback


class Spirals(pl.LightningModule):
    """Two spirals around each other: which of the two is a point on?"""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )

    def training_step(self, batch):
        points, labels = batch
        return nn.functional.cross_entropy(self.net(points), labels)

    def on_train_epoch_end(self):
        if (self.current_epoch + 1) % 10 == 0:
            print(f"epoch {self.current_epoch + 1} done, step {self.global_step}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


logging.getLogger("lightning.pytorch").setLevel(
    logging.WARNING
)  # the logs show what the script prints
torch.manual_seed(1)
labels = torch.arange(1500) % 2
radius = torch.rand(1500)
angle = 9 * radius + torch.pi * labels
points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)

spot, model = SpotCallback(), Spirals()
trainer = pl.Trainer(
    max_epochs=100,
    callbacks=[spot],
    logger=False,
    enable_checkpointing=False,  # SpotCallback saves
    enable_model_summary=False,
    enable_progress_bar=False,
)
loader = ResumableLoader(TensorDataset(points, labels), batch_size=50, shuffle=True)
trainer.fit(model, loader, ckpt_path=spot.newest())
accuracy = (model.net(points).argmax(1) == labels).float().mean()
print(f"trained {trainer.global_step} steps, accuracy {accuracy:.1%}")
