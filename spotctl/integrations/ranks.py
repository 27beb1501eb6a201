"""Decisions that all processes of a distributed training take together."""

import torch
from torch import distributed


def least(value: int) -> int:
    """The minimum of the values that all ranks pass; returns once every rank has passed one. One process: its value."""
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return value
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    shared = torch.tensor([value], device=device)
    distributed.all_reduce(shared, distributed.ReduceOp.MIN)
    return int(shared.item())
