"""`TorchModule` next to DistributedDataParallel (gloo) and the parameter server of Ray's
documentation, on one model.

Two processes compute on one thread each, on this machine. `python -m bench.torch_module` prints
steady throughput, the bytes that a batch sends, and what a lost process costs.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import agileml
from agileml.core.events import Iteration
from agileml.torch import TorchModule

CLOCKS, WARM = 40, 10
BATCH, WIDTH = 256, 256


def net() -> nn.Module:
    """About 0.2 million parameters."""
    return nn.Sequential(
        nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    )


def data() -> TensorDataset:
    """Random points, labeled by their largest number."""
    drawn = torch.randn(8192, 64, generator=torch.Generator().manual_seed(1))
    return TensorDataset(drawn, drawn[:, :10].argmax(1))


def objective(module: nn.Module, batch: Any) -> torch.Tensor:  # noqa: ANN401 - points and labels
    """Mean cross-entropy."""
    points, labels = batch
    return nn.functional.cross_entropy(module(points), labels)


def optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """AdamW, whose state is twice the size of the parameters."""
    return torch.optim.AdamW(module.parameters(), lr=1e-3)


def ours(nodes: str, chaos: str | None = None) -> list[Iteration]:
    """The clocks of a job on processes of this machine."""
    log: list[Iteration] = []
    trainer = TorchModule(net, data, objective, optimizer, batch_size=BATCH, parts=2)
    agileml.train(
        trainer, nodes, clocks=CLOCKS, chaos=chaos, listener=log.append, loss_sample=0, partitions=2
    )
    return log


def ddp() -> tuple[list[float], float]:
    """Seconds of each step with two processes and gloo, and from their start to their first
    step."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        queue = context.Queue()
        workers = [
            context.Process(target=_ddp_worker, args=(rank, folder, queue)) for rank in range(2)
        ]
        for worker in workers:
            worker.start()
        seconds: list[float] = queue.get(timeout=300)
        whole = time.perf_counter() - began
        for worker in workers:
            worker.join()
    return seconds, whole - sum(seconds[1:])


# A queue of this kind of process.
def _ddp_worker(rank: int, folder: str, queue: Any) -> None:  # noqa: ANN401
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{Path(folder)}/store", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    module = nn.parallel.DistributedDataParallel(net())
    optimize, samples, seconds = optimizer(module), data(), []
    for step in range(CLOCKS):
        began = time.perf_counter()
        batch = _part(samples, step, rank)
        optimize.zero_grad()
        torch.autograd.backward(objective(module, batch))
        optimize.step()
        seconds.append(time.perf_counter() - began)
    if rank == 0:
        queue.put(seconds)
    torch.distributed.destroy_process_group()


class Server:
    """Ray's pattern: an actor holds the model, and applies the workers' gradients to it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self._module = net()
        self._optimizer = optimizer(self._module)

    def weights(self) -> list[np.ndarray]:
        """The model."""
        return [parameter.detach().numpy() for parameter in self._module.parameters()]

    def apply(self, *gradients: list[np.ndarray]) -> list[np.ndarray]:
        """A step with the mean of the gradients; returns the model."""
        for parameter, *parts in zip(self._module.parameters(), *gradients, strict=True):
            parameter.grad = torch.from_numpy(np.mean(parts, axis=0))
        self._optimizer.step()
        return self.weights()


class Worker:
    """Computes gradients on its part of a batch."""

    def __init__(self, rank: int) -> None:
        torch.set_num_threads(1)
        self._rank, self._module, self._samples = rank, net(), data()

    def gradients(self, weights: list[np.ndarray], step: int) -> list[np.ndarray]:
        """The gradients of the loss at these weights."""
        with torch.no_grad():
            for parameter, values in zip(self._module.parameters(), weights, strict=True):
                parameter.copy_(torch.from_numpy(values.copy()))
        self._module.zero_grad()
        torch.autograd.backward(objective(self._module, _part(self._samples, step, self._rank)))
        return [
            parameter.grad.numpy()
            for parameter in self._module.parameters()
            if parameter.grad is not None
        ]


def ray_pattern() -> tuple[list[float], float]:
    """Seconds of each step, and the seconds added by the loss of a worker, in whose place another
    is started.
    """
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        server, start = ray.remote(Server).remote(), ray.remote(Worker).remote
        workers, seconds = [start(rank) for rank in range(2)], []
        weights = ray.get(server.weights.remote())
        for step in range(CLOCKS + 1):
            began = time.perf_counter()
            if step == CLOCKS:
                ray.kill(workers[1])
            try:
                parts = [worker.gradients.remote(weights, step) for worker in workers]
                weights = ray.get(server.apply.remote(*parts))
            except ray.exceptions.RayError:
                workers[1] = start(1)
                parts = [worker.gradients.remote(weights, step) for worker in workers]
                weights = ray.get(server.apply.remote(*parts))
            seconds.append(time.perf_counter() - began)
    finally:
        ray.shutdown()
    return seconds[:-1], seconds[-1] - statistics.median(seconds[WARM:-1])


def _part(samples: TensorDataset, step: int, rank: int) -> Any:  # noqa: ANN401 - points and labels
    first = (step * BATCH + rank * BATCH // 2) % len(samples)
    return torch.utils.data.default_collate(
        [samples[number] for number in range(first, first + BATCH // 2)]
    )


def main() -> None:
    """Prints the table."""
    size = sum(parameter.numel() for parameter in net().parameters()) * 4 / 2**10
    steady, lost = ours("1+1"), ours("1+2", "at clock 20 kill 1")
    usual = statistics.median(iteration.seconds for iteration in lost[WARM:19])
    mine = statistics.median(iteration.seconds for iteration in steady[WARM:])
    (steps, starting), (ray_steps, ray_lost) = ddp(), ray_pattern()
    sums = steady[-1].sums
    print(f"a model of {size:.0f} KiB, batches of {BATCH} on two processes")
    recovery = max(iteration.seconds for iteration in lost[19:]) - usual
    _line("TorchModule", mine, (sums.pushed + sums.pulled) / 2**10, recovery)
    # Each rank sends half of the model twice; a group that loses a rank starts again, from a
    # checkpoint.
    _line("DDP (gloo)", statistics.median(steps[WARM:]), 2 * size, starting)
    # Weights to each worker, gradients from each.
    _line("Ray's pattern", statistics.median(ray_steps[WARM:]), 4 * size, ray_lost)


def _line(name: str, seconds: float, kib: float, lost: float) -> None:
    print(
        f"{name:14} {1000 * seconds:8.1f} ms a batch {kib:8.0f} KiB sent, {lost:6.2f} s for a lost "
        "process"
    )


if __name__ == "__main__":
    main()
