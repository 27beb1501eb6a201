"""Nodes that join from elsewhere, over TCP on loopback: the training they share, and which
processes are refused.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.engines.attached import prepare_state
from agileml.engines.local.fleet import CONTROLLER_MEMORY
from agileml.errors import BadInput
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Layout
from agileml.roles.node import JobSettings
from agileml.runtime.attach import publish
from agileml.runtime.blob_store import FileBlobStore
from agileml.runtime.prepared_job import JobShape, PreparedJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.transport import TcpAddress
from agileml.work import WorkPlan
from tests.agileml.engines.attached_jobs import (
    AttachedTraining,
    free_port,
    secret_file,
    write_trainer,
)
from tests.samples import LONG_RUN
from tests.spotctl.command_line import spotctl

pytestmark = pytest.mark.timeout(600)

Train = Callable[..., AttachedTraining]


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    started: list[AttachedTraining] = []

    def train(*options: str, trainer: str = "mf") -> AttachedTraining:
        # A busy computer must not look like a failure.
        listen = TcpAddress("127.0.0.1", free_port())
        options = ("--timeouts", "heartbeat=30", *options)
        started.append(
            AttachedTraining(tmp_path, listen, trainer, *options, secret=secret_file(tmp_path))
        )
        return started[0]

    yield train
    for training in started:
        training.close()


def simulated(trainer: str, *options: str) -> dict[str, object]:
    """The model and its loss."""
    return outcome_of(
        spotctl(
            "lab", "train", trainer, "--engine", "sim", "--deterministic", "--json", *options
        ).json
    )


def outcome_of(answer: dict[str, object]) -> dict[str, object]:
    assert answer["loss"] is not None
    return {name: answer[name] for name in ("clocks", "loss", "model_sha256")}


def join(*words: str | Path, code: str = "import agileml.join as j") -> tuple[int, list[str]]:
    """The exit code and the log of a node that does not get far."""
    command = f"{code}\nimport sys\nsys.exit(j.main(sys.argv[1:]))"
    ended = subprocess.run(
        [sys.executable, "-c", command, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr.splitlines()


# -- training --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nodes_that_join_train_the_model_of_the_simulation(train: Train, tmp_path: Path) -> None:
    """They get the trainer's code, two files of it, from the controller."""
    trainer = str(write_trainer(tmp_path / "code"))
    training = train("--nodes", "1+2", "--clocks", "6", "--seed", "7", trainer=trainer)
    training.join("r0", "--reliable")
    for name in ("t1", "t2"):
        training.join(name)
    assert outcome_of(training.ended()) == simulated(
        trainer, "--nodes", "1+2", "--clocks", "6", "--seed", "7"
    )
    for name in ("r0", "t1", "t2"):
        assert training.exit_code(name) == 0
        assert "leaving: the job is done" in training.output_of(name)


@pytest.mark.slow
def test_only_holders_of_the_secret_and_of_a_new_name_are_let_in(
    train: Train, tmp_path: Path
) -> None:
    training = train("--nodes", "1+1", "--clocks", "3")
    secret = secret_file(tmp_path)
    (tmp_path / "other").mkdir()
    code, log = join(
        training.at, "--secret-file", secret_file(tmp_path / "other", "x" * 20), "--name", "t1"
    )
    assert (code, len(log)) == (3, 1)
    assert "does not hold this job's secret" in log[0]
    other_version = "import agileml.join as j\nj.code_version = lambda: '9.9.9'"
    code, log = join(training.at, "--secret-file", secret, "--name", "t1", code=other_version)
    assert (code, len(log)) == (3, 1)
    assert "'9.9.9'" in log[0]
    assert "install the same version everywhere" in log[0]
    twins = [training.join("r0", "--reliable", label=label) for label in ("one", "two")]
    training.until(
        lambda: any(twin.poll() is not None for twin in twins),
        "one of two nodes of one name is refused",
    )
    refused = "one" if twins[0].poll() is not None else "two"
    assert training.exit_code(refused) == 3
    (line,) = training.output_of(refused).splitlines()
    assert "another process has joined the job under this name" in line
    training.join("t1")
    assert training.ended()["failures"] == 0


@LONG_RUN
@pytest.mark.slow
def test_a_killed_command_is_run_again_and_its_nodes_rejoin(train: Train, tmp_path: Path) -> None:
    trainer = str(write_trainer(tmp_path / "code"))
    hurry = tmp_path / "hurry"
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as short:
        state = Path(short) / "state"
        # More clocks than a busy computer does at this pace until t3 is there.
        words = ("--nodes", "1+2", "--clocks", "60", "--seed", "7")
        training = train(*words, "--state", str(state), "--arg", f"hurry={hurry}", trainer=trainer)
        for name, *options in (("r0", "--reliable"), ("t1",), ("t2",)):
            training.join(name, *options)
        training.until_clock(2)
        training.kill_and_run_again()
        training.until_event("controller restarted")
        # Now with a node that is lost meanwhile, and another one in its place.
        training.signal("t2", signal.SIGKILL)
        training.kill_and_run_again()
        training.join("t3")
        training.until_ready("t3")
        hurry.touch()
        ended = training.ended()
        assert [line["clock"] for line in training.lines[:-1]] == list(range(1, 61))
        assert {training.exit_code(name) for name in ("r0", "t1", "t3")} == {0}
        assert not state.exists()
    assert outcome_of(ended) == simulated(trainer, *words)


def test_state_of_another_training_is_not_used(tmp_path: Path) -> None:
    given = TrainingJob(TrainerSource("mf"), 1, 1, Stopping(clocks=3))
    plan = PreparedJob(given, JobShape(WorkPlan((4,), 0, 2), Layout.cut({"w": np.zeros(8)}, 8), ""))
    state = tmp_path / "s"
    state.mkdir()
    publish(plan.node_role(FolderRendezvous(state, b"")), FileBlobStore(state))
    (state / CONTROLLER_MEMORY).touch()
    # How long a training goes on may change.
    prepare_state(state, replace(plan, job=replace(given, stopping=Stopping(clocks=9))))
    for changed, what in (
        (replace(given, settings=JobSettings(seed=1)), "with seed 0; name another folder"),
        (
            replace(given, source=TrainerSource("mf", {"rank": 9})),
            r"other arguments of the trainer, \{\}",
        ),
        (replace(given, source=TrainerSource("mlr")), "another trainer, mf"),
    ):
        with pytest.raises(BadInput, match=what):
            prepare_state(state, replace(plan, job=changed))
    (state / CONTROLLER_MEMORY).unlink()
    (state / "thesis.pdf").touch()
    with pytest.raises(BadInput, match="contains files that are not a job's state"):
        prepare_state(state, plan)


def test_a_node_gives_up_after_its_deadline(tmp_path: Path) -> None:
    at = f"127.0.0.1:{free_port()}"
    code, log = join(at, "--secret-file", secret_file(tmp_path), "--wait", "0.1")
    assert (code, len(log)) == (4, 1)
    assert f"no controller reached at tcp:{at} in 0.1 s" in log[0]


def test_a_step_that_hangs_does_not_keep_a_node_that_has_left() -> None:
    script = """
import threading
from agileml import join
join.main = lambda words: threading.Thread(target=threading.Event().wait).start() or 3
join.run()
"""
    path = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(
        [sys.executable, "-c", script], check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert ended.returncode == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["localhost"], "'localhost' is not HOST:PORT"),
        (["::1:7000"], "write an IPv6 address in brackets, such as [::1]:7000"),
        (["a:0"], "'a:0' is not HOST:PORT"),
        (["a:7000", "--name", "a/b"], "--name 'a/b'"),
        (["a:7000", "--name", "controller"], "--name 'controller'"),
        (["a:7000", "--port", "70000"], "--port 70000"),
        (["a:7000", "--wait", "-1"], "--wait -1"),
        (["a:7000", "--listen", "7071"], "'7071' is not HOST:PORT"),
        (
            ["a:7000", "--reached-in", "ROUTER_HOST", "ROUTER_PORT"],
            "variables ROUTER_HOST and ROUTER_PORT say ':'",
        ),
        (["a:7000"], "--secret-file is missing"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], message: str) -> None:
    code, log = join(*words)
    assert (code, len(log)) == (2, 1)
    assert message in log[0]


# -- the command -----------------------------------------------------------------------------------


def refusal(*words: str | Path) -> str:
    ended = spotctl("lab", "train", "mf", *words)
    assert ended.code == 2
    return ended.error


def test_the_command_refuses_what_cannot_work(tmp_path: Path) -> None:
    here, secret = ("--address", "127.0.0.1:7000"), ("--secret-file", secret_file(tmp_path))
    attach = ("--engine", "attach")
    assert "--engine attach also needs --address HOST:PORT" in refusal(*attach, *secret)
    assert "--engine attach also needs --secret-file FILE" in refusal(*attach, *here)
    assert "write an IPv6 address in brackets" in refusal(*attach, "--address", "::1:7000", *secret)
    assert "--address is only for --engine attach and ray" in refusal(*here)
    assert "--secret-file is only for --engine attach" in refusal("--engine", "sim", *secret)
    assert "--state is only for --engine attach and ray" in refusal("--state", tmp_path)
    assert "send SIGTERM to a node" in refusal(
        *attach, *here, *secret, "--chaos", "at clock 1 kill 1"
    )


def test_an_address_that_cannot_be_used_is_refused_before_any_work(tmp_path: Path) -> None:
    attach = ("--engine", "attach", "--secret-file", secret_file(tmp_path), "--address")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "Address already in use" in refusal(*attach, f"127.0.0.1:{taken.getsockname()[1]}")
    assert "cannot listen at tcp:192.0.2.1:7000" in refusal(*attach, "192.0.2.1:7000")
