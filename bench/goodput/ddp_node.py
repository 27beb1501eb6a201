"""A process of DistributedDataParallel. With `--checkpoints`, it continues from the newest one, as
torchrun expects.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from bench.goodput import workload

SAVING_SHARE = 0.05
"""A checkpoint is written once the last one took less than this share of the time since."""

CHECKPOINTS, EVERY = "SPOTCTL_CHECKPOINT_DIR", "SPOTCTL_CHECKPOINT_EVERY"
"""The variables of a command with the folder for checkpoints and the seconds between them; else the
shared folder."""


def main(size: str, *, saves: bool) -> None:
    """Trains until the cell is over."""
    torch.set_num_threads(1)
    if not distributed.is_initialized():
        distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    reporter, data = workload.Reporter(), workload.dataset()
    inner = workload.network(size)
    optimizer, step = workload.optimizer(inner), 0
    saved = Path(os.environ.get(CHECKPOINTS, reporter.folder)) / "checkpoint.pt"
    pause = float(os.environ.get(EVERY, "0"))
    if saves and saved.exists():
        state = torch.load(saved)
        inner.load_state_dict(state["module"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    module = DistributedDataParallel(inner)
    began, took, warned = time.monotonic(), 0.0, set[str]()
    while True:
        step += 1
        optimizer.zero_grad()
        torch.autograd.backward(workload.objective(module, workload.share(data, step, rank, ranks)))
        optimizer.step()
        if rank:
            continue
        reporter.commit(step)
        if reporter.is_over():
            reporter.final(step, inner)
            time.sleep(60)
        due = max(took / SAVING_SHARE, pause) < time.monotonic() - began
        if saves and (due or reporter.warned() - warned):
            warned, start = reporter.warned(), time.monotonic()
            part = saved.with_name(f".{os.getpid()}.pt")
            torch.save(
                {"module": inner.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                part,
            )
            part.replace(saved)
            began = time.monotonic()
            took = began - start


if __name__ == "__main__":
    main(sys.argv[1], saves="--checkpoints" in sys.argv)
