"""What the `ray` engine refuses, and where it places nodes. No cluster is started."""

from __future__ import annotations

import sys
import zipfile
from io import BytesIO
from types import SimpleNamespace

import pytest

import agileml
from agileml.engines.base import Gone
from agileml.engines.ray.cluster import RayCluster
from agileml.engines.ray.placement import MARKET_LABEL, RayMachine, placement_options
from agileml.engines.ray.shipped_code import zipped_package
from tests.spotctl.cli import spotctl


def refusal(*words: str) -> tuple[object, str]:
    ended = spotctl("train", "mf", "--nodes", "1+1", "--clocks", "1", *words)
    return ended.code, ended.error.strip()


def test_an_address_is_for_ray_only() -> None:
    assert refusal("--address", "auto") == (
        2,
        "spotctl: --address is only for --engine ray: it is that of a Ray cluster",
    )
    with pytest.raises(ValueError, match="only the engine 'ray' has an address"):
        agileml.train("mf", engine="sim", clocks=1, address="auto")


def test_nodes_must_reach_the_controller() -> None:
    pytest.importorskip("ray")
    code, error = refusal("--engine", "ray", "--address", "ray://10.0.0.1:10001")
    assert code == 2
    assert "through Ray Client they cannot; run it on a machine of the cluster" in error


def test_without_ray_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, error = refusal("--engine", "ray")
    assert code == 1
    assert error.endswith("engine ray needs Ray: pip install 'spotctl[cluster]'")


PLAIN, RELIABLE, TRANSIENT = (
    RayMachine({"CPU": 4.0, **mark}, {}) for mark in ({}, {"reliable": 1.0}, {"transient": 1.0})
)
SPOT, ON_DEMAND = (RayMachine({"CPU": 4.0}, {MARKET_LABEL: market}) for market in ("spot", "on-demand"))


@pytest.mark.parametrize(
    ("machines", "reliable", "options"),
    [
        ([PLAIN, PLAIN], True, {}),
        ([PLAIN, PLAIN], False, {}),
        ([RELIABLE, TRANSIENT], True, {"resources": {"reliable": 0.001}}),
        ([RELIABLE, TRANSIENT], False, {"resources": {"transient": 0.001}}),
        ([RELIABLE, PLAIN], False, {}),
        ([SPOT, ON_DEMAND], True, {"label_selector": {MARKET_LABEL: "!spot"}}),
        ([SPOT, ON_DEMAND], False, {"label_selector": {MARKET_LABEL: "spot"}}),
        ([ON_DEMAND, ON_DEMAND], False, {}),
        ([RELIABLE, SPOT], True, {"resources": {"reliable": 0.001}}),
    ],
)
def test_marks_of_machines_decide_where_nodes_go(
    machines: list[RayMachine], reliable: bool, options: dict[str, object]
) -> None:
    assert placement_options(machines, reliable=reliable) == options


def test_the_package_is_shipped_whole() -> None:
    names = zipfile.ZipFile(BytesIO(zipped_package())).namelist()
    assert {"agileml/__init__.py", "agileml/join.py", "agileml/engines/ray/role_task.py"} <= {*names}


class EmptyRay:
    """As much of Ray as starts tasks; each ends before it yields anything, and without an exception."""

    cloudpickle = SimpleNamespace(register_pickle_by_value=lambda _: None)
    exceptions = SimpleNamespace(RayError=RuntimeError)
    _private = SimpleNamespace(state=SimpleNamespace(state=SimpleNamespace(get_draining_nodes=dict)))

    def __init__(self) -> None:
        self.tasks: object = iter(())

    def cancel(self, task: object, *, force: bool) -> None:
        assert (task, force) == (self.tasks, True)

    def nodes(self) -> list[object]:
        return []

    def remote(self, _: object) -> object:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: self.tasks))

    def get(self, item: object) -> object:
        return item

    def wait(self, tasks: list[object], **_: object) -> tuple[list[object], list[object]]:
        return tasks, []


def test_a_task_that_ends_without_a_status_was_taken_away() -> None:
    cluster = RayCluster(EmptyRay(), own=False)
    cluster.start("t1", {})
    assert cluster.ended() == [Gone("t1")]
    assert cluster.ended() == []
    cluster.close()


def test_a_task_that_was_stopped_is_not_asked_again() -> None:
    """Ray 2.60 waits for ever for the next item of some tasks that were cancelled before they had a worker."""

    class Endless:
        def __next__(self) -> object:
            raise AssertionError("this may take for ever")

    ray = EmptyRay()
    ray.tasks = Endless()
    cluster = RayCluster(ray, own=False)
    cluster.start("t1", {})
    cluster.stop("t1")
    assert cluster.ended() == [Gone("t1")]
    cluster.close()
