"""Jobs that fail or are interrupted, and that they leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Act, Join, RunningMachine
from agileml.engines.local import LocalEngine
from agileml.engines.sim import SimulatedEngine
from agileml.errors import AgileMLError, Unrecoverable
from agileml.job import GaveUp, Stopping, TrainingJob
from agileml.reference import model_digest
from agileml.roles.node import JobSettings
from agileml.runtime.output import Printed
from tests.agileml.engines.jobs import Timetable, kill, transient
from tests.samples import LOCAL_FAULT

pytestmark = [pytest.mark.usefixtures("left_behind"), LOCAL_FAULT]

TRAINER = """
import os, numpy as np

class Steps:
    def init(self, rng):
        return {"w": np.zeros((8, 2), np.float32)}

    def shards(self):
        return [range(4)] * 4

    def step(self, shard, lo, hi, params, clock, rng):
        %s
        params.update("w", None, np.ones((8, 2), np.float32))

    def loss(self, params, sample):
        return float(params.read("w").sum())
"""


def job(folder: Path, step: str = "pass", clocks: int = 1000) -> TrainingJob:
    path = folder / "steps.py"
    path.write_text(TRAINER % step)
    settings = JobSettings(partitions=4)
    return TrainingJob(
        TrainerSource(str(path)), 1, 2, Stopping(clocks=clocks), settings, heartbeat_timeout=20.0
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("engine", "step", "told"),
    [
        (
            SimulatedEngine,
            "params.update('w', [0], np.full((1, 2), np.nan))",
            r"clock 1, parameter 'w'.*NaN",
        ),
        (
            SimulatedEngine,
            "params.update('w', [0], np.ones((1, 3)))",
            r"clock 1, parameter 'w'.*shape \(1, 3\)",
        ),
        (
            SimulatedEngine,
            "if clock == 3: params.read('v')",
            r"clock 3, parameter 'v': no such parameter",
        ),
        (LocalEngine, "raise KeyError('x')", r"clock 1, shard \d.*KeyError: 'x'"),
        (
            LocalEngine,
            "raise SystemExit(7)",
            r"clock 1, shard \d.*called sys.exit\(7\) \(.*steps.py, line 12.*raise an error to end the job",
        ),
        (SimulatedEngine, "raise SystemExit(7)", r"clock 1, shard \d.*called sys.exit\(7\)"),
    ],
)
def test_a_faulty_trainer_ends_the_job(
    tmp_path: Path, engine: Callable[[], SimulatedEngine | LocalEngine], step: str, told: str
) -> None:
    with pytest.raises(AgileMLError, match=told):
        engine().run(job(tmp_path, step), Timetable({}), lambda _: None)


def test_a_job_ends_when_its_nodes_keep_crashing(tmp_path: Path) -> None:
    with pytest.raises(Unrecoverable, match="failed in the same way"):
        LocalEngine().run(job(tmp_path, "os._exit(9)"), Timetable({}), lambda _: None)


def test_a_node_with_other_code_is_refused_with_both_versions(tmp_path: Path) -> None:
    given = job(tmp_path, clocks=150)
    before = given.source.code()

    def change_and_join(_: Sequence[RunningMachine]) -> Act:
        (tmp_path / "steps.py").write_text(TRAINER % "pass" + "\n")
        return Join(1)

    log: list[Iteration] = []
    step = "__import__('time').sleep(0.002)"
    trained = LocalEngine().run(
        job(tmp_path, step, 150), Timetable({2: [change_and_join]}), log.append
    )
    assert trained.clocks == 150
    refused = [
        event for iteration in log for event in iteration.events if event.startswith("refused")
    ]
    assert len(refused) == 1
    assert given.source.code() in refused[0]
    assert before != refused[0]
    assert log[-1].transient == 2


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(iteration: Iteration) -> None:
        if iteration.clock == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalEngine().run(job(tmp_path), Timetable({}), interrupt)


RUN = """
import signal, sys
from tests.agileml.engines.local.test_fleet_ends import job
from agileml.engines.chaos import QUIET
from agileml.engines.local import LocalEngine
from pathlib import Path
# Under nohup, and in the background of a shell, SIGINT is ignored, and this process inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
given = job(Path(sys.argv[1]), clocks=10**6)
trained = LocalEngine().run(given, QUIET, lambda iteration: print(iteration.clock, flush=True))
print("interrupted" if trained.interrupted else "done", trained.clocks, trained.counters.lost, trained.model["w"][0, 0])
"""


def test_ctrl_c_returns_the_last_stable_model(tmp_path: Path, left_behind: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(left_behind)},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "1\n"
        parent.send_signal(signal.SIGINT)
        printed, errors = parent.communicate()
    assert parent.returncode == 0
    assert "[job] interrupted: ending with the last stable model" in errors
    how, clocks, lost, value = printed.splitlines()[-1].split()
    assert (how, lost) == ("interrupted", "0")
    # 4 shards, a chunk for each of their 4 items, each adds 1
    assert float(value) == 16 * int(clocks) > 0
    assert not any(left_behind.iterdir())


def test_stopping_by_loss(tmp_path: Path) -> None:
    given = replace(
        job(tmp_path),
        stopping=Stopping(loss=0.0),
        settings=JobSettings(partitions=4, loss_sample=16),
    )
    trained = LocalEngine().run(given, Timetable({1: [kill(slice(1), transient)]}), lambda _: None)
    assert trained.clocks < 10


def printed(given: TrainingJob) -> list[tuple[str, str]]:
    """The lines that the nodes of a job print, and the names of the nodes."""
    lines: list[tuple[str, str]] = []

    def output(one: Printed) -> None:
        lines.extend((one.node, line) for line in one.text.splitlines())

    with suppress(AgileMLError):
        LocalEngine().run(given, Timetable({}), lambda _: None, output)
    return lines


def test_the_traceback_of_an_error_reaches_the_user(tmp_path: Path) -> None:
    lines = printed(job(tmp_path, "if clock == 2: raise KeyError('deep')"))
    text = [line for _, line in lines]
    assert "Traceback (most recent call last):" in text
    assert f'  File "{tmp_path / "steps.py"}", line 12, in step' in text
    assert "KeyError: 'deep'" in text


def test_a_reliable_node_that_ends_itself_with_any_status_is_replaced(tmp_path: Path) -> None:
    """Status 3 is that of a node which a job does not admit; no other machine would be started for
    one of these.
    """
    once = (
        f"p = {str(tmp_path / 'ended')!r}; clock == 2 and not os.path.exists(p) and (open(p, 'w'), "
        "os._exit(3))"
    )
    lonely = replace(job(tmp_path, once, clocks=4), transient=0)
    lines: list[str] = []
    done = LocalEngine().run(
        lonely, Timetable({}), lambda _: None, lambda line: lines.append(line.text)
    )
    assert (done.clocks, done.failures) == (4, 1)
    assert any("ended with status 3" in line for line in lines)


@pytest.mark.parametrize("transient", [2, 0])
def test_a_job_whose_nodes_crash_again_and_again_returns_its_last_stable_model(
    tmp_path: Path, transient: int
) -> None:
    """Also if the only reliable node is among them."""
    # Its checkpoints are written while it computes: it crashes only when that has had time to
    # happen.
    crashing = replace(
        job(tmp_path, "if clock == 4: __import__('time').sleep(1), os._exit(9)"),
        transient=transient,
    )
    with pytest.raises(GaveUp, match="failed in the same way") as raised:
        LocalEngine().run(crashing, Timetable({}), lambda _: None)
    trained = raised.value.trained
    expected = LocalEngine().run(
        job(tmp_path, clocks=trained.clocks), Timetable({}), lambda _: None
    )
    assert 1 <= trained.clocks <= 3
    assert model_digest(trained.model) == model_digest(expected.model)
    assert trained.counters.lost == 0
