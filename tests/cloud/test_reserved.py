"""Jobs that are launched on reserved machines of simulated clouds: they use these first, and others
for the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pricing_data.units import DAY, format_time
from tests.cloud.api import now_micros
from tests.cloud.aws import AwsServer
from tests.cloud.aws_market import ON_DEMAND_QUOTA, SPOT_QUOTA
from tests.cloud.aws_reservations import CapacityReservation
from tests.cloud.azure import AzureServer
from tests.cloud.azure_reservations import GROUP
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, simulated
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import running

PRICE = 0.02
LESS_THAN_SPOT = 0.005
COMMAND = """\
name: pair
kind: command
run: sleep 5
nodes: 2
workdir: work
hours: 1h
"""
TRAINING = """\
name: pair
kind: agileml
app: line:Line
args: {pause: 0.03}
workdir: work
stop: {clocks: 30}
throughputs: {c6i.large: 600}
"""
RESOURCES = """\
resources:
  clouds: [aws]
  regions: [us-east-1]
  types: [c6i.large]
"""
ZONES = {"gcp": "us-central1-b", "azure": "eastus-2"}
NAMES = {"gcp": "night", "azure": GROUP}
TWO_AND_A_RELIABLE_ONE = """\
  machines: 2
  reliable: {machines: 1, type: c6i.large}
"""

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture
def cloud() -> Iterator[SimulatedCloud]:
    with simulated("aws") as served:
        yield served


@pytest.fixture(params=["gcp", "azure"])
def other(request: pytest.FixtureRequest) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as served:
        yield served


def laptop_for(cloud: SimulatedCloud, folder: Path) -> Laptop:
    laptop = Laptop(folder, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
    return laptop


@pytest.fixture
def laptop(cloud: SimulatedCloud, tmp_path: Path) -> Laptop:
    return laptop_for(cloud, tmp_path)


def reserve(cloud: SimulatedCloud, machines: int) -> CapacityReservation:
    """Makes a reservation in the account."""
    assert isinstance(cloud.server, AwsServer)
    return cloud.server.reservations.reserve(
        CapacityReservation("cr-0abc", cloud.type, "us-east-1b", machines)
    )


def reserve_elsewhere(cloud: SimulatedCloud, machines: int) -> Callable[[], int]:
    """Makes a reservation on Google Cloud or Azure; what is returned counts the machines that are
    free.
    """
    if isinstance(cloud.server, GcpServer):
        of_google = cloud.server.reservations
        night = of_google.reserve("night", ZONES["gcp"], cloud.type, machines)
        return lambda: of_google.free(night)
    assert isinstance(cloud.server, AzureServer)
    of_azure = cloud.server.fleet.reservations
    reserved = of_azure.reserve(cloud.type, machines, "2")
    return lambda: of_azure.free(reserved)


def naming(text: str, machines: int, cloud: SimulatedCloud | None = None) -> str:
    """The job file, with a reservation of this many machines."""
    named, price = (
        {"id": "cr-0abc", "cloud": "aws", "zone": "us-east-1b", "type": "c6i.large"},
        PRICE,
    )
    if cloud is not None:
        named = {
            "id": NAMES[cloud.name],
            "cloud": cloud.name,
            "zone": ZONES[cloud.name],
            "type": cloud.type,
        }
        price = LESS_THAN_SPOT
    terms = {
        "machines": machines,
        "price": f"{price} USD/h",
        "until": format_time(now_micros() + DAY),
    }
    return f"{text}  reservations: {json.dumps([named | terms])}\n"


def resources_of(cloud: SimulatedCloud) -> str:
    return (
        f"resources:\n  clouds: [{cloud.name}]\n  regions: [{cloud.region}]\n  types: "
        f"[{cloud.type}]\n"
    )


def launched(laptop: Laptop, text: str) -> str:
    """The lines of a launch, until its job is done."""
    ended = laptop.run("launch", laptop.job(text), "--attached", "--yes", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["outcome"] == "done"
    return ended.stderr


def costs(laptop: Laptop) -> dict[str, Any]:
    """The rows of the report by kind of charge."""
    return {
        group["kind"]: group for group in laptop.answer("report", "cost", "--by", "kind")["groups"]
    }


def seconds(cloud: SimulatedCloud, zone: str) -> float:
    """The time that machines ran in a zone."""
    held = (
        machine
        for machine in cloud.server.machines()
        if f"/{zone}/" in machine.market and machine.ended
    )
    return sum((machine.ended or 0) - machine.started for machine in held) / 1e6


def test_a_command_has_all_nodes_in_a_reservation(cloud: SimulatedCloud, laptop: Laptop) -> None:
    """The quotas are 0: EC2 does not count reserved machines against them. What is billed is the
    user's price.
    """
    held = reserve(cloud, 2)
    assert isinstance(cloud.server, AwsServer)
    cloud.server.market.quotas |= {SPOT_QUOTA: 0.0, ON_DEMAND_QUOTA: 0.0}
    said = launched(laptop, naming(COMMAND + RESOURCES, 2))
    assert "rented 2 x c6i.large (us-east-1b, reservation cr-0abc) at $0.02/h" in said
    assert "on demand" not in said
    assert {machine.id for machine in cloud.server.machines()} == {
        lease.name for lease in held.members
    }
    assert (len(held.members), held.free) == (2, 2)
    paid = costs(laptop)["reserved machines"]
    # A machine is billed for a minute at least, and the ledger knows its end a little later than
    # the cloud.
    assert paid["total_usd"] == pytest.approx(
        2 * PRICE * max(seconds(cloud, "us-east-1b") / 2, 60) / 3600, rel=0.4
    )
    assert "spot machines" not in costs(laptop)
    assert running(cloud.server) == []
    assert cloud.server.resources() == ()


def test_a_training_takes_spot_machines_next_to_a_reserved_one(
    cloud: SimulatedCloud, laptop: Laptop
) -> None:
    held = reserve(cloud, 1)
    said = launched(laptop, naming(TRAINING + RESOURCES + TWO_AND_A_RELIABLE_ONE, 1))
    assert "rented 1 x c6i.large (us-east-1b, reservation cr-0abc) at $0.02/h" in said
    assert len(held.members) == 1
    assert [machine.spot for machine in cloud.server.machines()].count(True) == 1
    kinds = costs(laptop)
    assert {"reserved machines", "spot machines", "on-demand machines"} <= kinds.keys()
    # Both machines worked alike, and both have one list price.
    shares = [kinds[kind]["on_demand_usd"] for kind in ("reserved machines", "spot machines")]
    assert shares[0] > 0
    assert shares[0] == pytest.approx(shares[1], rel=0.3)
    assert running(cloud.server) == []
    assert cloud.server.resources() == ()


def test_a_reservation_that_others_have_used_up_is_left_for_spot_machines(
    cloud: SimulatedCloud, laptop: Laptop
) -> None:
    """The job file names two machines and one is left: the gang gives it back and goes elsewhere as
    a whole.
    """
    held = reserve(cloud, 1)
    said = launched(laptop, naming(COMMAND + RESOURCES, 2))
    assert "does not have sufficient compatible and available capacity" in said
    assert held.free == 1
    assert [machine.spot for machine in cloud.server.machines()].count(True) == 2
    assert running(cloud.server) == []


def test_a_reservation_that_does_not_exist_is_said_and_the_job_runs_elsewhere(
    cloud: SimulatedCloud, laptop: Laptop
) -> None:
    said = launched(laptop, naming(COMMAND + RESOURCES, 2))
    assert "The capacity reservation 'cr-0abc' does not exist" in said
    assert [machine.spot for machine in cloud.server.machines()] == [True, True]
    assert running(cloud.server) == []


def test_a_command_has_all_nodes_in_a_reservation_of_another_cloud(
    other: SimulatedCloud, tmp_path: Path
) -> None:
    """The quotas are 0: reserved machines have counted since they were reserved. The price is the
    user's.
    """
    free = reserve_elsewhere(other, 2)
    without_quotas(other)
    laptop = laptop_for(other, tmp_path)
    said = launched(laptop, naming(COMMAND + resources_of(other), 2, other))
    assert f"rented 2 x {other.type} ({ZONES[other.name]}, reservation night) at $0.005/h" in said
    assert "on demand" not in said
    assert [machine.spot for machine in other.server.machines()] == [False, False]
    assert free() == 2
    # Azure bills whole minutes, and a job that was shorter costs nothing.
    kinds = costs(laptop)
    assert "reserved machines" in kinds
    assert not {"spot machines", "on-demand machines"} & kinds.keys()
    assert running(other.server) == []
    assert other.server.resources() == ()


def test_a_reservation_of_another_cloud_that_is_used_up_is_left_for_spot_machines(
    other: SimulatedCloud, tmp_path: Path
) -> None:
    """The job file names two machines and one is left: the gang gives it back and goes elsewhere as
    a whole.
    """
    free = reserve_elsewhere(other, 1)
    said = launched(laptop_for(other, tmp_path), naming(COMMAND + resources_of(other), 2, other))
    assert f"rented 1 x {other.type} ({ZONES[other.name]}, reservation night)" in said
    assert free() == 1
    assert sorted(machine.spot for machine in other.server.machines()) == [False, True, True]
    assert running(other.server) == []


def test_a_reservation_of_another_cloud_that_does_not_exist_is_said_and_the_job_runs_elsewhere(
    other: SimulatedCloud, tmp_path: Path
) -> None:
    said = launched(laptop_for(other, tmp_path), naming(COMMAND + resources_of(other), 2, other))
    problem = {
        "gcp": "reservations/night] do not exist",
        "azure": f"no capacity reservation group {GROUP}",
    }
    assert f"{problem[other.name]}; correct the" in said
    assert [machine.spot for machine in other.server.machines()] == [True, True]
    assert running(other.server) == []


def without_quotas(cloud: SimulatedCloud) -> None:
    """Leaves the account no quota for machines."""
    if isinstance(cloud.server, GcpServer):
        cloud.server.quotas |= {"CPUS": 0.0, "PREEMPTIBLE_CPUS": 0.0}
        return
    assert isinstance(cloud.server, AzureServer)
    cloud.server.fleet.quota = cloud.server.fleet.cores = 0
