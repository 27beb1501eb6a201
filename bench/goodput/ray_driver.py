"""The coordinator of Ray Train: the head of a cluster, without a processor of its own, and the
driver of the training.

The training is that of `ddp_node`: one process writes checkpoints while the others go on. With
`ray.train.report`, all would wait for each other at each. The number of workers is fixed: an
elastic one learns of nodes every 20 seconds only.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from bench.goodput import ddp_node, workload
from bench.goodput.systems import RAY_START


def main(size: str, port: int, ready: Path) -> None:
    """Trains until the cell is over, whatever happens to its nodes."""
    folder = ready.parent
    alone = ("--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder / 'ray'}")
    subprocess.run([*RAY_START, "--head", f"--port={port}", *alone], check=True)
    ready.touch()
    ray.init(address=f"127.0.0.1:{port}")
    kept = RunConfig(
        storage_path=str(folder / "runs"), failure_config=FailureConfig(max_failures=-1)
    )
    TorchTrainer(
        partial(ddp_node.main, size, saves=True),
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=workload.NODES),
        run_config=kept,
    ).fit()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
