"""The training of `test_fsdp`: FSDP2 on processors, whose weights do not depend on the number of
ranks.

A gang of two waits after a few steps until the file `on` exists in the folder that is named, so
that one can be killed.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from spotctl.integrations.torch import Gang

STEPS, EVERY, HELD, BATCH = 30, 5, 17, 32


def network() -> nn.Sequential:
    """The same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 33), nn.Tanh(), nn.Linear(33, 5))


def trained(
    net: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int = 0, ranks: int = 1
) -> None:
    """One step on a rank's share of the batch."""
    points = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))
    share = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    loss = nn.functional.cross_entropy(net(points[share]), points[share, :5].argmax(1))
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


def main(folder: Path) -> None:
    """Trains, and writes the whole model."""
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net, mesh = network(), init_device_mesh("cpu", (ranks,))
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    gang = Gang(net, optimizer, every=EVERY)
    begin = gang.restore()
    with (folder / f"trace-{ranks}-{rank}").open("a", buffering=1) as notes:
        notes.write(f"begin {begin}\n")
        for step in range(begin, STEPS):
            trained(net, optimizer, step, rank, ranks)
            notes.write(f"step {step + 1}\n")
            gang.step(step + 1)
            while ranks > 1 and step + 1 == HELD and not (folder / "on").exists():
                time.sleep(0.05)
    whole = get_model_state_dict(
        net, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if rank == 0:
        torch.save(whole, folder / "whole.pt")
    gang.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
