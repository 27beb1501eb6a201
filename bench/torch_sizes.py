"""`TorchModule` next to a loop in plain PyTorch, and to DistributedDataParallel, by the size of
network and batch.

    python -m bench.torch_sizes [--clocks 300] [--repetitions 3] [--sizes 19 200 1000] [--nodes 1+1]

Processor time of all processes of the job, user and system, divided by clocks; all compute on one
thread each. A job of 1+1 nodes computes every sample once, as the loop does, and the loss over 256
samples, and writes checkpoints: the rest is what the servers, the network between processes and the
bookkeeping take. DDP has as many processes as the job has nodes, and gloo, each with its share of
the batch. Medians of repetitions, in turns; in brackets, the smallest and largest ratio within a
repetition. With `--device cuda`, all are on one graphics card, and times are the clock's.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import agileml
from agileml.core.events import Iteration
from agileml.torch import TorchModule
from bench.agileml_throughput import descendants, used_seconds

INPUTS, CLASSES, SAMPLES = 64, 10, 8192
WIDTHS = {19: 104, 26: 125, 200: 404, 1000: 960, 4000: 1960, 16000: 3960}
"""By thousands of parameters, the width of two hidden layers."""


def net(width: int) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(INPUTS, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def data() -> TensorDataset:
    """Random points, labeled by their largest number."""
    drawn = torch.randn(SAMPLES, INPUTS, generator=torch.Generator().manual_seed(1))
    return TensorDataset(drawn, drawn[:, :CLASSES].argmax(1))


def objective(module: nn.Module, batch: Any) -> torch.Tensor:  # noqa: ANN401 - points and labels
    """Mean cross-entropy."""
    points, labels = batch
    return nn.functional.cross_entropy(module(points), labels)


def adamw(module: nn.Module) -> torch.optim.Optimizer:
    """AdamW, whose state is twice the size of the parameters."""
    return torch.optim.AdamW(module.parameters(), lr=1e-3)


def _warm(clocks: int) -> int:
    """Clocks before the first that counts."""
    return max(5, clocks // 8)


def seconds_on(device: str) -> float:
    """Processor time of this process; on a card, the clock's, once the card has done what it was
    given.
    """
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def plain(width: int, batch: int, clocks: int, device: str) -> float:
    """Seconds of a step, as anyone writes the loop, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = net(width).to(device)
    optimizer, loader = adamw(module), DataLoader(data(), batch, shuffle=True, drop_last=True)
    done, began = 0, 0.0
    while True:
        for some in loader:
            if done == _warm(clocks):
                began = seconds_on(device)
            if done == _warm(clocks) + clocks:
                return (seconds_on(device) - began) / clocks
            optimizer.zero_grad()
            torch.autograd.backward(objective(module, [part.to(device) for part in some]))
            optimizer.step()
            done += 1


def plain_elsewhere(width: int, batch: int, clocks: int, device: str) -> float:
    """Seconds of a step, in a process of its own."""
    call = (
        f"from bench.torch_sizes import plain; print(plain({width}, {batch}, {clocks}, {device!r}))"
    )
    return float(
        subprocess.run(
            [sys.executable, "-c", call], check=True, capture_output=True, text=True
        ).stdout
    )


def ddp(sizes: tuple[int, int, int], ranks: int, device: str) -> float:
    """Seconds of a step of processes that each compute a part of the batch: of all processors, or
    of the clock.
    """
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        queue = context.Queue()
        arguments = [((rank, ranks), folder, queue, sizes, device) for rank in range(ranks)]
        processes = [context.Process(target=_ddp_rank, args=given) for given in arguments]
        for process in processes:
            process.start()
        seconds: list[float] = [queue.get(timeout=600) for _ in processes]
        for process in processes:
            process.join()
    return (sum(seconds) if device == "cpu" else max(seconds)) / sizes[2]


def _ddp_rank(
    place: tuple[int, int],
    folder: str,
    queue: Any,  # noqa: ANN401
    sizes: tuple[int, int, int],
    device: str,
) -> None:
    (rank, ranks), (width, batch, clocks) = place, sizes
    share = batch // ranks
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks
    )
    torch.manual_seed(0)
    module, samples = nn.parallel.DistributedDataParallel(net(width).to(device)), data()
    optimizer, began = adamw(module), 0.0
    for step in range(_warm(clocks) + clocks):
        if step == _warm(clocks):
            began = seconds_on(device)
        first = (step * batch + rank * share) % (len(samples) - share)
        some = torch.utils.data.default_collate(
            [samples[number] for number in range(first, first + share)]
        )
        optimizer.zero_grad()
        torch.autograd.backward(objective(module, [part.to(device) for part in some]))
        optimizer.step()
    queue.put(seconds_on(device) - began)
    torch.distributed.destroy_process_group()


@dataclass
class Times:
    """After two of a job's clocks: processor time of all its processes, or the clock's."""

    first: int
    last: int
    device: str
    seconds: list[float] = field(default_factory=list)

    def __call__(self, iteration: Iteration) -> None:
        """A clock is done."""
        if iteration.clock in (self.first, self.last):
            others = descendants(os.getpid()) if self.device == "cpu" else ()
            self.seconds.append(
                seconds_on(self.device) + sum(used_seconds(process) for process in others)
            )


def ours(sizes: tuple[int, int, int], parts: int, nodes: str, device: str) -> float:
    """Seconds of a clock."""
    width, batch, clocks = sizes
    trainer = TorchModule(
        lambda: net(width), data, objective, adamw, batch_size=batch, parts=parts, device=device
    )
    used = Times(_warm(clocks), _warm(clocks) + clocks, device)
    # More clocks than are measured: at the end the model is collected.
    agileml.train(trainer, nodes, clocks=used.last + 1, listener=used)
    return (used.seconds[1] - used.seconds[0]) / clocks


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.torch_sizes")
    parser.add_argument("--clocks", type=int, default=300)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[19, 200, 1000], choices=WIDTHS)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--nodes", default="1+1")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    if not re.fullmatch(r"\d+\+\d+", given.nodes):
        parser.error(f"--nodes {given.nodes}: write reliable and transient nodes, such as 1+3")
    ranks = sum(map(int, given.nodes.split("+")))
    print(
        "| parameters | batch | parts | plain PyTorch | DDP | TorchModule | above plain | times "
        "plain | times DDP |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for size in given.sizes:
        for batch in given.batches:
            loops: list[float] = []
            pairs: list[float] = []
            jobs: dict[int, list[float]] = {parts: [] for parts in given.parts}
            sizes = WIDTHS[size], batch, given.clocks
            for _ in range(given.repetitions):
                loops.append(plain_elsewhere(*sizes, given.device))
                pairs.append(ddp(sizes, ranks, given.device))
                for parts, seconds in jobs.items():
                    seconds.append(ours(sizes, parts, given.nodes, given.device))
            for parts, seconds in jobs.items():
                loop, pair, job = map(statistics.median, (loops, pairs, seconds))
                count = sum(parameter.numel() for parameter in net(WIDTHS[size]).parameters())
                times = " | ".join(
                    f"{1000 * value:.2f} ms" for value in (loop, pair, job, job - loop)
                )
                ratios = [used / theirs for used, theirs in zip(seconds, pairs, strict=True)]
                against = f"{job / pair:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                print(
                    f"| {count:,} | {batch} | {parts} | {times} | {job / loop:.2f} | {against} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
