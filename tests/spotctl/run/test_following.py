"""Commands that wait say for what, until when, and what it costs meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from agileml.runtime.blob_store import FileBlobStore
from pricing_data.units import SECOND
from spotctl.agent.data.stores import StoreRefused
from spotctl.cli.runs.live_runs import LiveRuns
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.local.provider import LocalProvider
from spotctl.home.config import Settings
from spotctl.home.errors import SpotctlError
from spotctl.home.paths import Paths
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.jobs import JobLock
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.run import following
from spotctl.run.following import RunEnd, RunObserver, end_awaited, in_time, waits_said
from spotctl.run.start import runs
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.runs.made_up_run import WILD, at, granted, order, rows, run_events
from tests.waiting import eventually

STOP = ev.StopRequested("stopped", "stopped on request")
RETURNED = [(12, ev.MachineEnded(name, at(12), "returned")) for name in ("r", "e")]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SAY_AFTER", 0.0)
    monkeypatch.setattr(following, "SAY_AGAIN", 0.0)


@pytest.mark.usefixtures("at_once")
def test_each_new_line_is_said_once() -> None:
    now, said = ["first"], list[str]()
    with waits_said(lambda: now[0], said.append):
        eventually(lambda: said == ["first"])
        now[0] = ""
        now[0] = "second"
        eventually(lambda: said == ["first", "second"])


def test_a_short_wait_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands, so that every wait is short."""
    monkeypatch.setattr("spotctl.run.following.time.monotonic", lambda: 7.0)
    said, looks = list[str](), list[int]()

    def awaited() -> str:
        looks.append(1)
        return "the cloud"

    with waits_said(awaited, said.append):
        eventually(lambda: len(looks) > 3)
    assert said == []


@pytest.mark.usefixtures("at_once")
def test_a_call_without_an_answer_is_given_up_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands until the wait was said, and is then over."""
    said, answers, end = list[str](), list[str](), threading.Event()
    monkeypatch.setattr(
        following, "wall_us", lambda: at(0) + (2 * 60 * SECOND if said and answers else 0)
    )

    def answered() -> str:
        answers.append("gcp")
        return "nothing"

    def silent() -> str:
        end.wait()
        return ""

    # A join with the clock standing would take the whole minute.
    with patch("threading.Thread.join", _patient(lambda: bool(said and answers))):
        found = in_time(
            {"aws": silent, "gcp": answered}, 60.0, "to list", "machines cost $1", said.append
        )
    end.set()
    assert found == {"gcp": "nothing"}
    assert (
        said[-1]
        == "waiting until 2026-01-01T00:01:00Z at the latest for aws to list; machines cost $1"
    )


def _patient(is_enough: Callable[[], bool]) -> Callable[..., None]:
    """Instead of a join with a limit: waits until it `is_enough`."""
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if timeout is None:
            join(thread)
        else:
            eventually(is_enough)

    return joined


def test_an_error_of_a_call_is_raised() -> None:
    def fails() -> str:
        raise SpotctlError("a mistake")

    with pytest.raises(SpotctlError, match="a mistake"):
        in_time({"aws": fails}, 60.0, "to list", "", print)


def state_after(*events: tuple[float, ev.Event]) -> RunState:
    return fold(rows([*run_events(), *events]))


def test_the_end_of_a_run_is_said_from_its_log() -> None:
    """Two machines are left: one on demand at $0.20 an hour, one with a bid of $0.095."""
    assert end_awaited(state_after()) == ""
    stopping = state_after((10, STOP))
    assert end_awaited(stopping) == (
        "waiting for 2 machines to be gone, until their leases are over at 2026-01-01T01:01:00Z of "
        "the market's clock at the latest; they cost at most $0.2950 an hour meanwhile"
    )
    assert end_awaited(stopping, "us-east-1 does not answer").endswith(
        "meanwhile (us-east-1 does not answer)"
    )
    returned = state_after((10, STOP), *RETURNED)
    assert end_awaited(returned) == (
        "waiting for its results to be stored and what is left of it in the cloud to be removed, "
        "tried until"
        " 2026-01-01T00:23:00Z of the market's clock; its machines are gone and cost nothing any "
        "more"
    )
    assert end_awaited(returned, "the store").startswith(
        "waiting for the store; its machines are gone"
    )
    assert (
        end_awaited(state_after((10, STOP), *RETURNED, (13, ev.RunEnded("stopped", "", 0)))) == ""
    )


def test_a_late_order_is_said_with_what_it_may_cost() -> None:
    late = state_after((9.5, order(5, WILD, 60_000_000, 4)), (10, STOP), *RETURNED)
    assert end_awaited(late) == (
        "waiting for the machines of an order without an answer to appear, until their leases are "
        "over at"
        " 2026-01-01T01:01:00Z of the market's clock at the latest; they cost at most $0.2400 an "
        "hour meanwhile"
    )
    some = state_after(
        (9.5, order(5, WILD, 60_000_000, 4)), (9.6, granted(5, 9.6, "f")), (10, STOP), *RETURNED
    )
    assert end_awaited(some).startswith("waiting for 1 machine to be gone, until")


JOB = """\
name: small
kind: command
run: echo made > $OUTPUT_RESULT/made
resources: {clouds: [local], types: [c4.2xlarge]}
strategy: on-demand
checkpoint: {path: saved, every: 1m}
outputs: {result: out}
local: {speed: 20}
"""


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("owner", "name", "error", "line"),
    [
        (
            LocalProvider,
            "terminate",
            Unanswered("no route to the cloud"),
            "waiting for 1 machine to be gone, until",
        ),
        (
            FileBlobStore,
            "list",
            StoreRefused("the store answers 503"),
            "waiting for its results to be stored, tried",
        ),
    ],
    ids=["machines", "results"],
)
def test_a_launch_says_what_its_end_waits_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    error: Exception,
    line: str,
) -> None:
    """In the foreground: at its end, a cloud does not answer, or a store fails, until that was
    said.
    """
    (tmp_path / "job.yaml").write_text(JOB)
    log, said = Paths(tmp_path / "home").log, list[str]()
    method, show = getattr(owner, name), LiveRuns.show_remark

    def heard(live: LiveRuns, job: str, text: str) -> None:
        said.append(text)
        show(live, job, text)

    def call(*arguments: Any) -> Any:  # noqa: ANN401 - those of the method
        with EventLog(log) as opened:
            runs_here = opened.beginnings()
            ends = runs_here and fold(opened.of_run(runs_here[-1].run)).stopping is not None
        if ends and not any(line in text for text in said):
            raise error
        return method(*arguments)

    monkeypatch.setattr(LiveRuns, "show_remark", heard)
    monkeypatch.setattr(owner, name, call)
    ended = spotctl("launch", tmp_path / "job.yaml", "--yes", "--json")
    assert ended.code == 0, ended.err
    found = next(text for text in ended.err.splitlines() if line in text)
    assert "cost at most $" in found or "cost nothing any more" in found


@pytest.mark.usefixtures("at_once")
def test_stop_names_the_process_that_returns_the_machines(tmp_path: Path) -> None:
    settings, said, ends = Settings(home=tmp_path), list[str](), list[RunEnd]()
    paths = Paths(tmp_path)
    observer = RunObserver(on_remark=lambda _, line: said.append(line))
    thread = threading.Thread(target=lambda: ends.append(runs.stop("small", settings, observer)))
    with JobLock(paths.locks, "small"), EventLog(paths.log) as log:
        thread.start()
        eventually(lambda: said)
        assert f"waiting for process {os.getpid()}, which is about to begin a run" in said[0]
        for minutes, event in run_events():
            log.append("small-1", at(minutes), event)
        eventually(lambda: any("2 machines to be gone" in line for line in said))
        log.append("small-1", at(12), ev.RunEnded("stopped", "", 0))
        thread.join()
    assert f"process {os.getpid()} ends the run" in said[-1]
    assert ends[0][1].outcome == "stopped"
