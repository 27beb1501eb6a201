"""The training of `bench.torch_gang`: DDP, whose every step takes a known time, and is noted in the
file TRACE.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from spotctl.integrations.torch import Gang

STEPS, EVERY, STEP_SECONDS = 100_000, 20, 0.05
WIDTH = 1024


def main(trace: Path, end: Path) -> None:
    """Trains until the file `end` exists."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    net = DistributedDataParallel(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    gang = Gang(net, optimizer, every=EVERY)
    begin, ranks = gang.restore(), dist.get_world_size()
    with trace.open("a", buffering=1) as notes:
        notes.write(f"begin {begin} {ranks} {time.time()}\n")
        for step in range(begin, STEPS):
            began = time.monotonic()
            points = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(step))
            loss = nn.functional.cross_entropy(net(points), points[:, :10].argmax(1))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))
            notes.write(f"step {step + 1} {ranks} {time.time()}\n")
            gang.step(step + 1)
            over = torch.tensor(end.exists())
            dist.broadcast(over, 0)
            if over:
                break
    gang.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(os.environ["TRACE"]), Path(sys.argv[1]))
