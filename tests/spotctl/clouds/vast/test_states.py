"""Hosts that cannot run a job, and what becomes of an instance whose container does not run: who
was outbid lost a machine to a bid; others did not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pricing_data.units import DAY, SECOND
from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import NoCapacity, Unanswered
from spotctl.clouds.provider import EndReason, Machine, MachineState
from spotctl.clouds.vast.cloud import VastSettings
from spotctl.clouds.vast.offers import wanted
from spotctl.clouds.vast.provider import VastProvider
from tests.servers.vast_market import Host
from tests.spotctl.clouds.vast.world import RUN, World, order

# github.com/dizcza/docker-hashcat/issues/21
OLD_DRIVER = (
    "Error response from daemon: failed to create task for container: OCI runtime create failed: "
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8"
)
STOPPED = {"cur_state": "stopped", "next_state": "stopped", "actual_status": "stopped"}


@pytest.mark.parametrize(
    "changed",
    [
        {"cuda": 12.4},
        {"capability": 520},
        {"mbit_down": 18.0},
        {"share": 0.125},
        {"external": True},
        {"taken": True},
    ],
    ids=str,
)
def test_a_host_that_could_not_run_the_job_is_not_ordered(
    made: World, provider: VastProvider, changed: dict[str, Any]
) -> None:
    made.market.hosts[:] = []
    made.market.add(Host(9, gpu_floor=0.01, **changed))
    with pytest.raises(NoCapacity):
        provider.create(order(machines=1))
    other = made.market.add(Host(10))
    provider.create(order("once-more", 1))
    assert [contract.host for contract in made.market.alive()] == [other]


@pytest.mark.parametrize(
    ("image", "cuda", "capability"),
    [
        ("nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04", 12.4, 600),
        ("pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime", 13.0, 750),
        ("ghcr.io/someone/train:2.3-cu118", 11.8, 600),
        ("python:3.12", 12.8, 600),
    ],
)
def test_hosts_have_a_driver_and_a_gpu_for_the_image(
    image: str, cuda: float, capability: int
) -> None:
    filters = wanted(VastSettings(), image)
    assert (filters["cuda_max_good"], filters["compute_cap"]) == (
        {"gte": cuda},
        {"gte": capability},
    )


@pytest.mark.parametrize(
    ("shown", "state", "failure"),
    [
        ({}, MachineState.RUNNING, ""),
        ({"actual_status": None, "cur_state": "stopped", "next_state": "running"}, "starting", ""),
        ({"actual_status": "loading", "status_msg": "a1b2: Pulling fs layer"}, "starting", ""),
        ({"actual_status": "created", "status_msg": OLD_DRIVER}, "paused", "cuda>=12.8"),
        ({"actual_status": "created"}, "starting", ""),
        ({"actual_status": "rebooting"}, "starting", ""),
        ({"actual_status": "unknown"}, "starting", ""),
        ({"actual_status": "offline"}, "paused", "its host is offline"),
        ({"actual_status": "exited", "status_msg": "exited (137)"}, "paused", r"ended: exited"),
        (STOPPED | {"intended_status": "stopped"}, "paused", ""),
        (STOPPED | {"intended_status": "running"}, "paused", ""),
        ({**STOPPED, "actual_status": "exited"}, "paused", ""),
        (STOPPED | {"next_state": "running", "intended_status": "running"}, "paused", ""),
        (STOPPED | {"is_bid": False}, "paused", "stopped by its host"),
    ],
    ids=str,
)
def test_only_who_is_outbid_is_evicted(
    made: World, provider: VastProvider, shown: dict[str, Any], state: str, failure: str
) -> None:
    (machine,) = provider.create(order(machines=1))
    (contract,) = made.market.alive()
    contract.shown.update(shown)
    listed = one(provider)
    assert listed.state is MachineState(state)
    assert (failure in listed.failure) if failure else not listed.failure
    if listed.state is not MachineState.PAUSED:
        return
    with pytest.raises(Unanswered, match=failure or "outbid"):
        provider.link(machine.id)
    provider.terminate([machine.id])
    reason = EndReason.FAILED if failure else EndReason.EVICTED
    assert one(provider).end_reason is reason


def one(provider: VastProvider) -> Machine:
    (machine,) = provider.list(RUN)
    return machine


def test_a_host_that_has_failed_is_avoided_for_a_day(
    made: World, provider: VastProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every run of the home; a run also avoids hosts whose machines never answered it."""
    made.market.hosts[0].gpu_floor = 0.01
    (first,) = provider.create(order("a", 1))
    made.market.alive()[0].shown.update(actual_status="offline")
    assert one(provider).failure
    provider.terminate([first.id])
    (second,) = provider.create(order("b", 1))
    assert (first.host, second.host) == (1, 2)
    (third,) = provider.create(replace(order("c", 1), silent=(second.id,)))
    assert third.host == 3

    provider.terminate([second.id, third.id])
    now = provider.now()
    monkeypatch.setattr(provider, "now", lambda: now + DAY + SECOND)
    assert provider.create(order("d", 1))[0].host == 1


def test_the_pull_of_an_image_is_a_sign_of_life(made: World, provider: VastProvider) -> None:
    """A run gets it with the machine's status, although nothing of its own runs there yet."""
    made.market.loads_seconds = 900.0
    provider.create(order(machines=1))
    (contract,) = made.market.alive()
    layers, signs = ("Downloading 1 of 9", "Downloading 2 of 9"), []
    for layer in layers:
        contract.shown["status_msg"] = layer
        signs.append(provider.with_status(one(provider)).boot)
    assert signs == [BootSign("ordered", layer) for layer in layers]
