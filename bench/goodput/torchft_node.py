"""A replica of torchft, run by the interpreter of an environment with it: `SIZE WRAPPER GROUP
SECONDS`.

Each replica computes its third of a batch, as with torchft's sampler of data. With the wrapper
`whole`, those that take part in a step compute the whole batch, with the allreduce of `hand`.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, nn
from torchft import Manager
from torchft.ddp import DistributedDataParallel, PureDistributedDataParallel
from torchft.process_group import ProcessGroupBabyGloo, ProcessGroupGloo

from bench.goodput import workload

GROUPS = {"gloo": ProcessGroupGloo, "baby": ProcessGroupBabyGloo}


def main(size: str, wrapper: str, group: str, seconds: float) -> None:
    """Trains until the cell is over, or until this node is warned."""
    torch.set_num_threads(1)
    own, longest = os.environ[workload.NODE], timedelta(seconds=seconds)
    node = own.partition("-")[0]
    reporter, data = workload.Reporter(), workload.dataset()
    inner = workload.network(size)
    optimizer = workload.optimizer(inner)

    def load(state: dict[str, Any]) -> None:
        inner.load_state_dict(state["module"])
        optimizer.load_state_dict(state["optimizer"])

    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    manager = Manager(
        pg=GROUPS[group](timeout=longest),
        load_state_dict=load,
        state_dict=lambda: {"module": inner.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=1,
        timeout=longest,
        quorum_timeout=timedelta(seconds=10),
        quorum_retries=40,
        connect_timeout=longest,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        hostname="127.0.0.1",
        replica_id=f"node{node}",
    )
    wrappers = {"ddp": DistributedDataParallel, "pure": PureDistributedDataParallel}
    module = wrappers[wrapper](manager, inner) if wrapper in wrappers else inner
    while own not in reporter.warned():
        manager.start_quorum()
        optimizer.zero_grad()
        place, of = int(node), workload.NODES
        if wrapper == "whole" and (rank := manager.participating_rank()) is not None:
            place, of = rank, manager.num_participants()
        batch = workload.share(data, manager.current_step() + 1, place, of)
        torch.autograd.backward(workload.objective(module, batch))
        if module is inner:
            _reduce(manager, inner)
        length = len(batch[0])
        if manager.should_commit():
            optimizer.step()
            useful = length if manager.is_participating() else 0
            reporter.commit(manager.current_step(), useful, node, redone=length - useful)
        else:
            reporter.commit(manager.current_step(), 0, node, redone=length)
        if reporter.is_over():
            reporter.final(manager.current_step(), inner)
            break
    manager.shutdown(wait=False)
    os._exit(0)


def _reduce(manager: Manager, module: nn.Module) -> None:
    """Means of all gradients at once."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    whole = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(whole).wait()
    lengths = [gradient.numel() for gradient in gradients]
    for gradient, mean in zip(gradients, torch.split(whole, lengths), strict=True):
        gradient.copy_(mean.view_as(gradient))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
