"""Marks of machines, and the ends of tasks."""

from __future__ import annotations

import pytest

from agileml.engines.base import Gone
from agileml.engines.ray.cluster import MARKET_LABEL, RayCluster, RayMachine, placement_options
from tests.agileml.engines.test_ray_usage import PLAIN, RELIABLE, TRANSIENT, EmptyRay

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
