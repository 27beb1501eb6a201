"""A gang that trains with FSDP2: what is sharded over two machines goes on, whole, on the one that
remains.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from spotctl.agent.container.processes import MARK, kill_marked
from spotctl.integrations.gang_saves import METADATA, SECRET_VARIABLE, grouped
from tests.samples import LONG_RUN
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HOSTS = ("127.0.0.2", "127.0.0.3")
SCRIPT = Path(__file__).with_name("fsdp_script.py")
ROOT = Path(__file__).parents[3]


class Machines:
    """The machines of a gang, in folders of their own, each with some ranks."""

    def __init__(self, folder: Path, hosts: Sequence[str], ranks: int, port: int) -> None:
        self.folder, self.hosts, self.ranks, self.port = folder, hosts, ranks, port
        self.secret = secrets.token_hex(16)
        self.processes = [self._started(machine) for machine in range(len(hosts))]

    def _started(self, machine: int) -> subprocess.Popen[bytes]:
        home = self.home(machine)
        home.mkdir()
        variables = {
            MARK: str(home),
            SECRET_VARIABLE: self.secret,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": str(ROOT),
        }
        words = [
            "--machines",
            ",".join(self.hosts),
            "--machine",
            str(machine),
            "--port",
            str(self.port),
        ]
        words.append(f"--nproc-per-node={self.ranks}")
        command = [
            sys.executable,
            "-m",
            "spotctl.integrations.gang",
            *words,
            str(SCRIPT),
            str(self.folder),
        ]
        with (home / "output").open("wb") as output:
            return subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=output, stderr=output
            )

    def home(self, machine: int) -> Path:
        return self.folder / f"m{machine}"

    def kill(self, machine: int) -> None:
        kill_marked(self.home(machine))
        self.processes[machine].wait()

    def printed(self) -> str:
        return "\n".join(
            (self.home(machine) / "output").read_text()[-4000:]
            for machine in range(len(self.hosts))
        )

    def trace(self, ranks: int, rank: int) -> list[str]:
        path = self.folder / f"trace-{ranks}-{rank}"
        return path.read_text().splitlines() if path.exists() else []


@contextmanager
def gang_of(folder: Path, hosts: Sequence[str], ranks: int = 1) -> Iterator[Machines]:
    made = Machines(folder, hosts, ranks, 21_000 + os.getpid() % 2_000 * 5)
    try:
        yield made
    finally:
        for machine in range(len(hosts)):
            made.kill(machine)


def stored(home: Path) -> set[int]:
    """The steps whose saves are complete on a machine."""
    files = [
        path.relative_to(home / "gang" / "store").as_posix()
        for path in (home / "gang").rglob("saves/*/*")
    ]
    parts = {name.step: found for name, found in grouped(files).items()}
    return {
        step for step, found in parts.items() if METADATA in found and len(found) == 1 + len(HOSTS)
    }


@LONG_RUN
def test_a_sharded_training_goes_on_with_the_shards_of_the_machine_that_is_lost(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")
    from tests.spotctl.integrations import fsdp_script as script

    with gang_of(tmp_path, HOSTS) as machines:

        def alive() -> bool:
            assert machines.processes[0].poll() is None, machines.printed()
            return True

        held = f"step {script.HELD}"
        eventually(lambda: alive() and all(held in machines.trace(2, rank) for rank in range(2)))
        # A save that is due while the one before is being written is left out.
        eventually(lambda: alive() and stored(machines.home(0)))
        machines.kill(1)
        saved = max(stored(machines.home(0)))
        (tmp_path / "on").touch()
        assert machines.processes[0].wait(300) == 0, machines.printed()
        assert machines.trace(1, 0)[0] == f"begin {saved}"
        assert saved % script.EVERY == 0
    check_model(tmp_path)


@LONG_RUN
def test_a_machine_may_have_several_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "on").touch()
    with gang_of(tmp_path, HOSTS[:1], ranks=2) as machines:
        eventually(lambda: machines.processes[0].poll() is not None)
        assert machines.processes[0].returncode == 0, machines.printed()
        assert machines.trace(2, 1)[0] == "begin 0"
    check_model(tmp_path)


def check_model(folder: Path) -> None:
    """The model is that of one process."""
    import torch

    from tests.spotctl.integrations import fsdp_script as script

    net = script.network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(script.STEPS):
        script.trained(net, optimizer, step)
    found = torch.load(folder / "whole.pt")
    assert found.keys() == net.state_dict().keys()
    for name, values in net.state_dict().items():
        assert torch.allclose(found[name], values, rtol=1e-4, atol=1e-5), name
