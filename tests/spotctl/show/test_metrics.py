"""Metrics of runs: their text, the file and the port."""

from __future__ import annotations

import re
import socket
import stat
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError

import pytest

from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.ledger.rows import CostSoFar
from spotctl.log.state import RunState
from spotctl.show.metrics import metrics_text, publishing
from spotctl.show.runs.reading import RunViews
from spotctl.show.runs.run_view import Money, RunView, run_view
from tests.spotctl.show.runs.made_up_run import at, rows, run_events

NANO_SECONDS = 3600 * 10**9
MONEY = Money(
    CostSoFar(2 * NANO_SECONDS, 2 * NANO_SECONDS), 8 * NANO_SECONDS, None, 3 * NANO_SECONDS
)


def view(state: RunState, goal: int | None = 100) -> RunView:
    return run_view(state, at(9), attended=True, money=MONEY, goal=goal)


STATE = fold(rows(run_events()))
VIEW = view(STATE)
ENDED = ev.RunEnded(
    "done", "", 0, {"spent": NANO_SECONDS, "on_demand": 2 * NANO_SECONDS, "updates_lost": 0}
)
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.e+]+)')


def parsed(text: str) -> dict[str, dict[str, float]]:
    """Values by metric and labels, of a text that follows the rules of the format."""
    assert text.endswith("\n")
    found: dict[str, dict[str, float]] = {}
    announced = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            announced = line.split(" ")[2]
            assert announced not in found
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == announced
            assert line.endswith(" counter") is announced.endswith("_total")
            found[announced] = {}
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert sample[1] == announced
            assert (sample[2] or "") not in found[announced]
            found[announced][sample[2] or ""] = float(sample[3])
    return found


def test_the_figures_of_a_run() -> None:
    found = parsed(metrics_text([VIEW], 12.5))
    run = 'job="small",run="small-1"'
    assert {
        name.removeprefix("spotctl_"): samples[run]
        for name, samples in found.items()
        if run in samples
    } == {
        "replayed_spent_dollars": 2,
        "replayed_committed_dollars": 3,
        "replayed_on_demand_dollars": 8,
        "evictions_total": 4,
        "clock": 40,
        "clocks": 100,
        "loss": 0.2,
        "last_clock_age_seconds": 60,
        # 30 clocks took six minutes; one has passed since the newest of them.
        "expected_end_seconds": 11 * 60,
        "running": 1,
    }
    assert found["spotctl_machines"] == {
        f'{run},kind="reliable",market="local/sim-east/sim-east-a/c4.xlarge",pricing="on-demand"': 1,
        f'{run},kind="transient",market="local/sim-east/sim-east-b/c4.xlarge",pricing="spot"': 0,
        f'{run},kind="transient",market="local/sim-east/sim-east-a/c4.xlarge",pricing="spot"': 1,
    }
    assert found["spotctl_updated_timestamp_seconds"] == {"": 12.5}


def test_no_metric_has_real_and_replayed_money() -> None:
    """Monitoring adds a metric up over runs."""
    billed = replace(VIEW, job="paid", is_replayed=False)
    found = parsed(metrics_text([VIEW, billed], 0))
    for name, dollars in (("spent", 2.0), ("committed", 3.0), ("on_demand", 8.0)):
        assert found[f"spotctl_{name}_dollars"] == {'job="paid",run="small-1"': dollars}
        assert found[f"spotctl_replayed_{name}_dollars"] == {'job="small",run="small-1"': dollars}


def test_gpus_are_a_gauge_by_market_where_they_are_known() -> None:
    assert "spotctl_gpu_busy_ratio" not in metrics_text([VIEW], 0)
    state = fold(rows([*run_events(), (10, ev.CardsUsed("e", 87, 61))]))
    found = parsed(metrics_text([view(state)], 0))
    market = "local/sim-east/sim-east-a/c4.xlarge"
    assert found["spotctl_gpu_busy_ratio"] == {f'job="small",run="small-1",market="{market}"': 0.87}


def test_several_runs_with_odd_names_share_their_metrics() -> None:
    odd = replace(VIEW, job='a"b\\c\nd')
    found = parsed(metrics_text([VIEW, odd], 0))
    assert list(found["spotctl_clock"]) == [
        'job="small",run="small-1"',
        r'job="a\"b\\c\nd",run="small-1"',
    ]


def test_a_planned_run_ends_as_planned_and_a_run_of_unknown_length_has_no_end() -> None:
    planned = ev.Planned(1.0, 0.5, 2.0, 0.5, 4.0, assumed=False)
    assert view(replace(STATE, planned=planned), None).expected_end == at(30)
    unknown = replace(planned, assumed=True)
    assert view(replace(STATE, planned=unknown), None).expected_end is None


def ended(home: Path) -> tuple[RunState, RunViews]:
    spec = {"name": "small", "kind": "command", "run": "true", "resources": {"clouds": ["local"]}}
    began = ev.RunBegan("small", "local", spec, "/nowhere", 0)
    return fold(rows([(0, began), (1, ENDED)])), RunViews(Settings(home))


def test_the_file_is_replaced_and_a_failure_is_reported_once(tmp_path: Path) -> None:
    path, remarks = tmp_path / "folder" / "spotctl.prom", list[str]()
    state, views = ended(tmp_path)
    with (
        pytest.raises(BadRequest, match=r"spotctl\.prom: cannot be written"),
        publishing(str(path), views, print),
    ):
        pass
    path.parent.mkdir()
    with publishing(str(path), views, remarks.append) as publish:
        publish(state)
        assert parsed(path.read_text())["spotctl_updates_lost_total"] == {
            'job="small",run="small-1"': 0
        }
        assert list(path.parent.iterdir()) == [path]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # Monitoring that runs as another user may read it if its owner says so.
        path.chmod(0o644)
        publish(state)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.unlink()
        path.parent.rmdir()
        publish(state)
        publish(state)
    assert len(remarks) == 1
    assert remarks[0].endswith("; the run continues")


@contextmanager
def served(views: RunViews) -> Iterator[tuple[int, Callable[[RunState], None]]]:
    """Metrics on a free port; another process may take it first."""
    with ExitStack() as stack:
        while True:
            with closing(socket.create_server(("127.0.0.1", 0))) as found:
                port = found.getsockname()[1]
            try:
                publish = stack.enter_context(publishing(str(port), views, print))
            except BadRequest:
                continue
            break
        yield port, publish


def test_the_port_serves_the_newest_text_to_who_has_the_token(tmp_path: Path) -> None:
    state, views = ended(tmp_path)
    with served(views) as (port, publish):
        publish(state)
        token = tmp_path / "metrics-token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
        refused = {"": 401, "Bearer other": 401, f"Bearer {token.read_text()}": 421}
        for given, status in refused.items():
            host = (
                f"elsewhere.example:{port}"
                if status == HTTPStatus.MISDIRECTED_REQUEST
                else f"localhost:{port}"
            )
            wrong = urllib.request.Request(
                asked.full_url, headers={"Authorization": given, "Host": host}
            )
            with pytest.raises(HTTPError) as answered:
                urllib.request.urlopen(wrong, timeout=300)
            assert answered.value.code == status
            assert b"spotctl_" not in answered.value.read()
        asked.add_header("Authorization", f"Bearer {token.read_text()}")
        with urllib.request.urlopen(asked, timeout=300) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert parsed(answer.read().decode())["spotctl_running"] == {
                'job="small",run="small-1"': 0
            }
        with (
            pytest.raises(BadRequest, match="cannot listen on 127"),
            publishing(str(port), views, print),
        ):
            pass
    for place in ("localhost:9100", ":9100", "127.0.0.1:9100", "-9100"):
        with (
            pytest.raises(BadRequest, match=r"a port of 127\.0\.0\.1 alone"),
            publishing(place, views, print),
        ):
            pass
    with pytest.raises(BadRequest, match="is not a port"), publishing("70000", views, print):
        pass
