"""A plain PyTorch script that survives evictions: it saves after every epoch, and starts where the
last save ended.
"""

import os
import time
from pathlib import Path

import torch
from torch import nn

SECONDS = float(
    os.environ.get("COMPUTE_SECONDS", "30")
)  # of computing: as long on a fast computer as on a slow one
FOLDER = Path(
    os.environ.get("SPOTCTL_CHECKPOINT_DIR", "checkpoints")
)  # spotctl keeps what is written here
CHECKPOINT = FOLDER / "last.pt"


def spirals(points=1500):
    """Two spirals around each other: which of the two is a point on?"""
    label = torch.arange(points) % 2
    radius = torch.rand(points)
    angle = 9 * radius + torch.pi * label
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), label


torch.manual_seed(1)
inputs, labels = spirals()
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
epoch, seconds = 0, 0.0
if CHECKPOINT.exists():
    saved = torch.load(CHECKPOINT)
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    epoch, seconds = saved["epoch"], saved["seconds"]
    print(f"resuming at epoch {epoch + 1}", flush=True)

FOLDER.mkdir(exist_ok=True)
began = time.process_time() - seconds
while seconds < SECONDS:
    epoch += 1
    for batch in torch.randperm(len(inputs)).split(50):
        loss = nn.functional.cross_entropy(net(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = time.process_time() - began
    saved = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
        "seconds": seconds,
    }
    torch.save(saved, FOLDER / ".last.pt")
    (FOLDER / ".last.pt").rename(CHECKPOINT)  # files appear whole or not at all
    if epoch % 30 == 0:
        accuracy = (net(inputs).argmax(1) == labels).float().mean()
        print(f"epoch {epoch}  loss {loss:.4f}  accuracy {accuracy:.1%}", flush=True)
