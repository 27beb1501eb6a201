"""The coordinator of this project's trainer: it computes nothing. Nodes join it by `python -m
agileml.join`.

They are linked by Unix sockets, as in the local engine, and save in a folder that they share. Or
they are linked by TCP and TLS, as on several computers: checkpoints go through the coordinator
then, to its disk.
"""

from __future__ import annotations

import re
import sys
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path

import torch

from agileml.core.events import Iteration
from agileml.engines.attached import AttachedJob
from agileml.engines.local.fleet import prepare_job
from agileml.job import Stopping, TrainingJob
from agileml.roles.node import JobSettings
from agileml.runtime.folders import read_secret
from agileml.runtime.output import show
from agileml.torch import TorchModule
from agileml.training import parse_nodes, source_of
from agileml.transport import TcpAddress
from bench.goodput import workload
from bench.goodput.schedule import WARNING_SECONDS

UNIX, TLS = "unix", "tls"
_ROLLBACK = re.compile(r"^epoch \d+ from version (\d+)")
PARTS = workload.NODES
"""A share of a batch for each node. Twice as many would suit two nodes better, but a small share
takes longer by the sample, which costs more."""


def job_folder(shared: Path) -> Path:
    """The folder of a job whose nodes are linked by Unix sockets."""
    return shared / "job"


def node_name(node: int, life: int) -> str:
    """The name of a node after a start: a job takes each name once."""
    return f"n{node}-{life}"


def main(size: str, nodes: str, link: str, port: int, secret: Path) -> None:
    """Trains until the cell is over."""
    torch.set_num_threads(1)
    trainer = TorchModule(
        partial(workload.network, size),
        workload.dataset,
        workload.objective,
        workload.optimizer,
        batch_size=workload.BATCH,
        parts=PARTS,
        shuffle=False,
        tolerance=inf,
    )
    reporter = workload.Reporter()

    def finished(iteration: Iteration) -> None:
        # Clocks that are repeated after a rollback are reported only once.
        versions = [
            int(number) for event in iteration.events for number in _ROLLBACK.findall(event)
        ]
        repeated = (
            max([0, *(iteration.clock - 1 - version for version in versions)]) * workload.BATCH
        )
        redone = max(repeated, iteration.redone * workload.BATCH // PARTS)
        reporter.commit(iteration.clock, redone=redone, again=repeated)

    reliable, transient = parse_nodes(nodes)
    job = TrainingJob(
        source_of(trainer), reliable, transient, Stopping(seconds=3600), JobSettings(loss_sample=0)
    )
    listen = TcpAddress("127.0.0.1", port) if link == TLS else None
    folder = job_folder(secret.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    given = prepare_job(job, show), folder, read_secret(secret), finished, 0, show, listen
    with closing(AttachedJob(*given)) as attached:
        stopped, warned = False, set[str]()
        while (trained := attached.turn(0.05)) is None:
            for start in reporter.warned() - warned:
                warned.add(start)
                attached.warn(f"n{start}", WARNING_SECONDS)
            if not stopped and reporter.is_over():
                stopped = True
                attached.stop()
        module = workload.network(size)
        module.load_state_dict(trainer.state_dict(trained.model))
        reporter.final(trained.clocks, module)
        attached.release(5.0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
