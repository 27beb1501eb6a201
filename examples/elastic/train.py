"""The loop of plain.py on machines that come and go: five lines differ."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from agileml.torch import Elastic

EPOCHS = 60


def spirals(points=1600):
    """Two spirals around each other: which of the two is a point on?"""
    label = torch.arange(points) % 2
    radius = torch.rand(points)
    angle = 9 * radius + torch.pi * label
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), label


torch.manual_seed(1)
inputs, labels = spirals()
loader = DataLoader(TensorDataset(inputs, labels), batch_size=80, shuffle=True)
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))

elastic = Elastic(net, optimizer, loader, state=scheduler)
for step, (points, targets) in elastic:
    loss = nn.functional.cross_entropy(net(points), targets)
    optimizer.zero_grad()
    loss.backward()
    if step % 200 == 0 and elastic.is_first:
        print(f"step {step}  loss {loss:.4f}", flush=True)
    elastic.step()
    scheduler.step()

print(f"accuracy {(net(inputs).argmax(1) == labels).float().mean():.1%}")
