"""What the `ray` engine refuses, and where it places nodes. No cluster is started."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import agileml
from agileml.engines.ray.cluster import RayMachine
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
