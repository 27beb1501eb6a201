"""A training on three hosts without a shared folder, which loses processes, cables and hosts, and
no update.
"""

from __future__ import annotations

import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from agileml.transport import TcpAddress
from tests.agileml.engines.attached_jobs import (
    PACE,
    SECRET,
    TRAINER,
    AttachedTraining,
    write_trainer,
)
from tests.agileml.engines.cut_hosts import play, undisturbed
from tests.agileml.engines.hosts import Host, hosts
from tests.samples import LONG_RUN
from tests.spotctl.command_line import spotctl

CLOCKS = 80


OPTIONS = ("--timeouts", "heartbeat=5")


@contextmanager
def three_hosts(
    tmp_path: Path, *options: str
) -> Iterator[tuple[AttachedTraining, Path, list[Host]]]:
    """A training whose command runs on the first of three hosts, and the file that makes it
    hurry."""
    seen = tmp_path / "seen"
    seen.mkdir()
    hurry = seen / "hurry"
    # A short path, so that the nodes' sockets are in this folder, too.
    with (
        tempfile.TemporaryDirectory(prefix="h-", dir="/tmp") as name,
        hosts(3, here := Path(name)) as started,
    ):
        for host in started:
            host.write("job.secret", SECRET)
        # Only the controller's host has the trainer's code.
        for file, content in {
            "decades.py": TRAINER,
            "helpers/__init__.py": "",
            "helpers/pace.py": PACE,
        }.items():
            started[0].write(f"code/{file}", content)
        at, trainer = TcpAddress(started[0].address, 7000), str(here / "code" / "decades.py")
        words = (*OPTIONS, *options, "--arg", f"hurry={hurry}")
        secret, prefix = here / "job.secret", started[0].command()
        with closing(
            AttachedTraining(seen, at, trainer, *words, secret=secret, prefix=prefix)
        ) as training:
            yield training, hurry, started


def simulated(tmp_path: Path, clocks: int) -> str:
    """The digest of the undisturbed model. It does not depend on how long a step takes."""
    trainer = write_trainer(tmp_path / "copy")
    ended = spotctl(
        "lab",
        "train",
        trainer,
        "--engine",
        "sim",
        "--deterministic",
        "--json",
        "--nodes",
        "1+2",
        "--clocks",
        str(clocks),
    )
    return str(ended.json["model_sha256"])


@pytest.mark.slow
@LONG_RUN
def test_a_training_on_three_hosts_survives_what_can_happen_to_them(tmp_path: Path) -> None:
    with three_hosts(tmp_path, "--nodes", "1+2", "--clocks", str(CLOCKS)) as (
        training,
        hurry,
        started,
    ):
        strike(training, *started)
        hurry.touch()
        model = training.ended()["model_sha256"]
    assert model == simulated(tmp_path, CLOCKS)


@LONG_RUN
@pytest.mark.slow
def test_of_two_nodes_that_cannot_reach_each_other_one_is_given_up(tmp_path: Path) -> None:
    """As with a firewall between them: both are alive, and no data passes."""
    with three_hosts(tmp_path, "--nodes", "1+1", "--clocks", "5") as (
        training,
        hurry,
        (_, second, third),
    ):
        hurry.touch()
        second.ignore(third)
        training.join("r0", "--reliable", prefix=second.command())
        training.join("t1", prefix=third.command())
        model = training.ended()["model_sha256"]
        assert any("t1 lost: no link between" in event for event in training.events)
        assert training.exit_code("r0") == 0
        # It may learn that it was given up or, at the same time, that the job is over.
        assert training.exit_code("t1") in (0, 1)
    assert model == simulated(tmp_path, 5)


@LONG_RUN
@pytest.mark.slow
def test_single_connections_between_hosts_break_and_no_update_is_lost() -> None:
    """`python -m tests.agileml.engines.cut_hosts 0 20` runs more."""
    assert play(0)[0] == undisturbed()


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
    versions = [
        int(match[1])
        for event in training.events
        if (match := re.search(r"from version (\d+)", event))
    ]
    # With the only reliable node, a clock may be lost whose checkpoint was still being written, and
    # no more.
    assert all(later >= earlier - 1 for earlier, later in pairwise(versions)), versions
    assert versions[-1] > 0
