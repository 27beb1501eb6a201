"""A training on three hosts without a shared folder, which loses processes, cables and hosts, and no update."""

from __future__ import annotations

import re
import signal
from contextlib import closing
from pathlib import Path

import pytest

from agileml.transport import TcpAddress
from tests.agileml.engines.attached_jobs import PACE, SECRET, TRAINER, AttachedTraining, write_trainer
from tests.agileml.engines.hosts import Host, hosts
from tests.spotctl.cli import spotctl

CLOCKS = 80


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_training_on_three_hosts_survives_what_can_happen_to_them(tmp_path: Path) -> None:
    here, seen = tmp_path / "here", tmp_path / "seen"
    for folder in (here, seen):
        folder.mkdir()
    hurry = seen / "hurry"
    with hosts(3, here) as (first, second, third):
        for host in (first, second, third):
            host.write("job.secret", SECRET)
        # Only the controller's host has the trainer's code.
        for name, content in {"decades.py": TRAINER, "helpers/__init__.py": "", "helpers/pace.py": PACE}.items():
            first.write(f"code/{name}", content)
        options = ("--nodes", "1+2", "--clocks", str(CLOCKS), "--arg", f"hurry={hurry}", "--heartbeat-timeout", "5")
        with closing(
            AttachedTraining(
                seen,
                TcpAddress(first.address, 7000),
                str(here / "code" / "decades.py"),
                *options,
                secret=here / "job.secret",
                prefix=first.command(),
            )
        ) as training:
            strike(training, first, second, third)
            hurry.touch()
            model = training.ended()["model_sha256"]
    write_trainer(tmp_path / "copy")
    simulated = spotctl(
        "train", str(tmp_path / "copy" / "decades.py"), "--engine", "sim", "--deterministic", "--json", *options
    )
    assert model == simulated.json["model_sha256"]


def strike(training: AttachedTraining, first: Host, second: Host, third: Host) -> None:
    def join(name: str, host: Host, *options: str) -> None:
        training.join(name, *options, prefix=host.command())

    # Training starts when all are there.
    join("t1", first)
    join("t2", second)
    join("r0", third, "--reliable")
    training.until_clock(1)
    # Nodes join while it runs.
    join("t3", third)
    join("r4", second, "--reliable")
    training.until_ready("t3")
    training.until_ready("r4")
    # A machine is to be taken away.
    training.signal("t2", signal.SIGTERM)
    assert training.exit_code("t2") == 0
    training.until_event("t2 left")
    # A process is killed, and then the controller, which goes on from its memory.
    training.signal("t1", signal.SIGKILL)
    training.until_event("t1 lost")
    assert first.kill_where("1", "/controller.out") == 1
    training.until_event("controller restarted")
    # A cable is cut. The node is given up, and learns of it when the cable is plugged in again.
    join("t5", second)
    training.until_ready("t5")
    third.cut()
    training.until_event("t3 lost")
    third.plug_in()
    assert training.exit_code("t3") == training.exit_code("r0") == 1
    # A host dies with the only reliable node. The checkpoint is on the controller's host.
    join("t6", third)
    training.until_ready("t6")
    second.kill()
    join("r7", third, "--reliable")
    training.until_event("r4 lost")
    training.until_ready("r7")
    before = training.lines[-1]["clock"]
    training.until_clock(before + 1)
    versions = [int(match[1]) for event in training.events if (match := re.search(r"from version (\d+)", event))]
    assert versions == sorted(versions)
    assert versions[-1] > 0
