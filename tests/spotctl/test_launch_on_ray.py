"""Jobs with `engine: ray`: what is accepted, and that nothing is rented. `make ray` trains on a
cluster.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import loads, restored, written
from spotctl.home.errors import BadRequest
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

JOB = """\
name: job
kind: agileml
app: mf
engine: ray
address: 10.0.0.4:6379
stop: {clocks: 4}
resources: {machines: 3}
"""
NOT_RENTED = "is about machines to rent, and engine: ray rents none; remove it"
NOT_THERE = "does not reach the machines of a Ray cluster; provide it there, and remove it"


def refused(text: str) -> str:
    with pytest.raises(BadRequest) as caught:
        loads(text, Path("job.yaml"))
    return str(caught.value)


@pytest.mark.parametrize(
    "line", ["budget: 5 USD", "deadline: 10h", "strategy: on-demand", "local: {speed: 60}"]
)
def test_keys_about_renting_are_refused(line: str) -> None:
    assert refused(f"{JOB}{line}\n") == f"job.yaml:8: {line.partition(':')[0]}: {NOT_RENTED}"


@pytest.mark.parametrize(
    "key", ["clouds: [local]", "types: [m3.medium]", "types: {vcpus: 2..}", "zones: any"]
)
def test_places_to_rent_are_refused(key: str) -> None:
    text = JOB.replace("machines: 3", f"machines: 3, {key}")
    assert refused(text) == f"job.yaml:7: resources.{key.partition(':')[0]}: {NOT_RENTED}"


@pytest.mark.parametrize("line", ["setup: make", "env: {A: b}", "secrets: [A]", "data: {a: b}"])
def test_what_would_be_made_on_rented_machines_is_refused(line: str) -> None:
    assert refused(f"{JOB}{line}\n") == f"job.yaml:8: {line.partition(':')[0]}: {NOT_THERE}"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("machines: 3", "machines: 1..3", "write how many transient nodes to start"),
        ("machines: 3", "reliable: {machines: 1}", "machines: is missing"),
        ("10.0.0.4:6379", "ray://10.0.0.4:6379", "expected HOST:PORT of a Ray cluster, or auto"),
        ("engine: ray\n", "", "address: is that of a Ray cluster; write engine: ray, or remove it"),
        ("engine: ray\naddress: 10.0.0.4:6379\n", "", "resources.clouds: is missing"),
        ("engine: ray", "engine: spark", "engine: unknown value 'spark'"),
    ],
)
def test_what_does_not_fit_is_refused(before: str, after: str, why: str) -> None:
    assert why in refused(JOB.replace(before, after))


def test_a_plan_rents_nothing(tmp_path: Path) -> None:
    spec = loads(JOB, tmp_path / "job.yaml")
    assert (
        restored(written(spec), tmp_path)
        == loads("\n".join(JOB.splitlines()), tmp_path / "job.yaml")
        == spec
    )
    (tmp_path / "job.yaml").write_text(JOB)
    cluster = {"engine": "ray", "address": "10.0.0.4:6379", "reliable": 1, "transient": 3}
    for words in (("plan",), ("launch", "--dry-run")):
        answer = spotctl(*words, tmp_path / "job.yaml", "--json").json
        assert answer == {
            "job": "job",
            "cluster": cluster,
            "choice": [],
            "expected": {"cost_usd": 0.0},
        }
    assert (
        "1 reliable + 3 transient nodes of the Ray cluster at 10.0.0.4:6379"
        in spotctl(*words, tmp_path / "job.yaml").out
    )


def test_it_is_launched_alone(tmp_path: Path, approved: Approved) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(JOB.replace("name: job", f"name: {name}"))
    ended = spotctl("launch", tmp_path / "a", tmp_path / "b", "--yes")
    approved(ended)


def test_a_training_that_fails_costs_nothing_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError('no data here')\n")
    (tmp_path / "job.yaml").write_text(JOB.replace("app: mf", "app: mine.py"))
    ended = spotctl("launch", tmp_path / "job.yaml", "--json")
    assert (ended.code, ended.json["outcome"], ended.json["cost_usd"]) == (1, "failed", 0.0)
    assert "no data here" in ended.json["message"]
    assert "ray: " in (printed := spotctl("logs", "job").out)
    assert "no data here" in printed
    report = spotctl("report", "cost")
    assert "job: trained on a Ray cluster, whose cost is not in this report" in report.out
