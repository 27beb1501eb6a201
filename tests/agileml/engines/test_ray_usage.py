"""What the `ray` engine refuses, and where it places nodes. No cluster is started."""

from __future__ import annotations

import sys
import zipfile
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agileml
from agileml.engines.base import Gone
from agileml.engines.ray.cluster import MARKET_LABEL, RayCluster, RayMachine, placement_options
from agileml.engines.ray.fleet import NODE_SHARE, RayFleet
from agileml.engines.ray.role_task import zipped_package
from agileml.runtime.prepared_job import PreparedJob, RunnableJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.transport import TcpAddress
from tests.agileml.engines.fleet_suite import JOB
from tests.agileml.pipeline.run.fleet_jobs import prepared
from tests.spotctl.command_line import spotctl


def refusal(*words: str) -> tuple[object, str]:
    ended = spotctl("lab", "train", "mf", "--nodes", "1+1", "--clocks", "1", *words)
    return ended.code, ended.error.strip()


def test_an_address_is_for_ray_only() -> None:
    assert refusal("--address", "auto") == (
        2,
        "spotctl: --address is only for --engine attach and ray, whose nodes run on other machines",
    )
    with pytest.raises(ValueError, match="only 'ray' takes an address"):
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
SPOT, ON_DEMAND = (
    RayMachine({"CPU": 4.0}, {MARKET_LABEL: market}) for market in ("spot", "on-demand")
)


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
    assert {"agileml/__init__.py", "agileml/join.py", "agileml/engines/ray/role_task.py"} <= {
        *names
    }


class EmptyRay:
    """As much of Ray as starts tasks; each ends before it yields anything, and without an
    exception.
    """

    cloudpickle = SimpleNamespace(register_pickle_by_value=lambda _: None)
    exceptions = SimpleNamespace(RayError=RuntimeError)
    _private = SimpleNamespace(
        state=SimpleNamespace(state=SimpleNamespace(get_draining_nodes=dict))
    )

    def __init__(self, *machines: RayMachine) -> None:
        self.tasks: object = iter(())
        self.machines = machines
        self.options: list[dict[str, object]] = []

    def cancel(self, task: object, *, force: bool) -> None:
        assert (task, force) == (self.tasks, True)

    def nodes(self) -> list[dict[str, object]]:
        return [
            {"Resources": at.resources, "Labels": at.labels, "Alive": True} for at in self.machines
        ]

    def put(self, content: bytes) -> bytes:
        return content

    def remote(self, _: object) -> object:
        def options(**given: object) -> object:
            self.options.append(given)
            return SimpleNamespace(remote=lambda *_: self.tasks)

        return SimpleNamespace(options=options)

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
    """Ray 2.60 waits for ever for the next item of some tasks that were cancelled before they had a
    worker.
    """

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


@pytest.mark.parametrize(
    ("plan", "place"),
    [(prepared(1), None), (PreparedJob(JOB, None), {"reliable": 0.001})],  # type: ignore[arg-type]
)
def test_nodes_of_a_pipeline_go_to_any_machine(
    plan: RunnableJob, place: object, tmp_path: Path
) -> None:
    """Each is replaced, wherever it was; of a trainer, those that keep the model need a machine
    that stays.
    """
    ray = EmptyRay(RELIABLE, TRANSIENT)
    cluster = RayCluster(ray, own=False)
    rendezvous = FolderRendezvous(tmp_path, b"secret", TcpAddress("127.0.0.2", 1))
    no_processes: Any = None
    RayFleet(plan, no_processes, rendezvous, cluster, NODE_SHARE, print).start_node(
        "r0", reliable=True
    )
    cluster.close()
    assert ray.options[0].get("resources") == place
