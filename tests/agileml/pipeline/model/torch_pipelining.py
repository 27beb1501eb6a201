"""A model in two processes under `torch.distributed.pipelining`: the losses of its microbatches."""

from __future__ import annotations

import multiprocessing
import os
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from tests.agileml.pipeline.model.torch_constructs import (
    CONSTRUCTS,
    MICROBATCHES,
    UPDATES,
    Construct,
)

PATIENCE_SECONDS = 20


class Chain(nn.Module):
    """Modules in turn, each with one or several values."""

    def __init__(self, children: list[nn.Module]) -> None:
        super().__init__()
        self.inner = nn.ModuleList(children)

    def forward(self, *values: Any) -> Any:  # noqa: ANN401  # a tensor or several
        for child in self.inner:
            result = child(*values)
            values = result if isinstance(result, tuple) else (result,)
        return values if len(values) > 1 else values[0]


def losses_or_error(name: str, schedule: str) -> list[float] | str:
    """The losses, or the first line of the error."""
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        receivers, workers = [], []
        for rank in range(2):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (name, schedule, rank, Path(folder) / "store", sender)
            workers.append(context.Process(target=_work, args=arguments, daemon=True))
            workers[-1].start()
            sender.close()
            receivers.append(receiver)
        answers = [
            receiver.recv() if receiver.poll(3 * PATIENCE_SECONDS) else "no answer"
            for receiver in receivers
        ]
        for worker in workers:
            worker.kill()
            worker.join()
    errors = [answer for answer in answers if isinstance(answer, str)]
    # The stage that fails answers before the one that waits for it.
    return (
        min(errors, key=lambda error: "Connection" in error or "imed out" in error)
        if errors
        else answers[-1]
    )


def _work(name: str, schedule: str, rank: int, store: Path, answer: Connection) -> None:
    try:
        construct = next(construct for construct in CONSTRUCTS if construct.name == name)
        answer.send(_losses(construct, schedule, rank, store))
    except Exception as error:  # noqa: BLE001  # the table shows it
        answer.send(f"{type(error).__name__}: {error}".splitlines()[0])


def _losses(construct: Construct, schedule: str, rank: int, store: Path) -> list[float]:
    from torch.distributed import pipelining

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    timeout = timedelta(seconds=PATIENCE_SECONDS)
    torch.distributed.init_process_group(
        "gloo", init_method=store.as_uri(), rank=rank, world_size=2, timeout=timeout
    )
    children = construct.children()
    half = len(children) // 2
    module = Chain(children[half:] if rank else children[:half])
    stage = pipelining.PipelineStage(module, rank, 2, torch.device("cpu"))
    runner = getattr(pipelining, schedule)(stage, MICROBATCHES, loss_fn=construct.loss)
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = construct.make(trained or [nn.Parameter(torch.zeros(1))])
    rates = construct.schedule(optimizer) if construct.schedule else None
    losses: list[float] = []
    for update in range(UPDATES):
        pairs = [
            construct.data(k) for k in range(update * MICROBATCHES, (update + 1) * MICROBATCHES)
        ]
        inputs = [_values(values) for values, _ in pairs]
        batch = [torch.cat([one[i] for one in inputs]) for i in range(len(inputs[0]))]
        for parameter in trained:
            parameter.grad = None
        if rank:
            found: list[torch.Tensor] = []
            runner.step(target=torch.cat([target for _, target in pairs]), losses=found)
            losses += [loss.item() for loss in found]
        else:
            runner.step(*batch)
        optimizer.step()
        if rates:
            rates.step()
    torch.distributed.destroy_process_group()
    return losses


def _values(values: Any) -> tuple[torch.Tensor, ...]:  # noqa: ANN401  # a tensor or several
    return values if isinstance(values, tuple) else (values,)
