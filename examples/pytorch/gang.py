"""A DDP script that loses seconds, not minutes, when a machine is evicted. The lines with `gang`
are all that is new.

On one computer, as three machines that you may kill (see bench/torch_gang.py), or as a job:
examples/pytorch/gang.yaml
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from spotctl.integrations.torch import Gang

STEPS = int(os.environ.get("STEPS", "400"))
BATCH = 256  # over all ranks, however many there are

dist.init_process_group(
    "gloo", timeout=timedelta(minutes=1)
)  # in which a machine that vanished is noticed
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = DistributedDataParallel(
    nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
gang = Gang(net, optimizer, every=20)

begin = gang.restore()
print(f"rank {rank} of {ranks} begins at step {begin}", flush=True)
for step in range(begin, STEPS):
    drawn = torch.Generator().manual_seed(
        step
    )  # the batch depends on the step only: none is skipped or repeated
    points = torch.randn(BATCH, 64, generator=drawn)
    labels = points[:, :10].argmax(1)
    share = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    loss = nn.functional.cross_entropy(net(points[share]), labels[share])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and (step + 1) % 20 == 0:
        print(f"step {step + 1}  loss {loss:.3f}", flush=True)
    gang.step(step + 1)
gang.close()
dist.destroy_process_group()
