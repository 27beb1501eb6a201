"""The machine of a runner is lost, or only cut off: a standby goes on with the run, and nothing is bought twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spotctl.run.environment import LAUNCHER
from spotctl.run.remote_runner.fence import Claim
from spotctl.run.remote_runner.place import RunPlace
from tests.cloud.clouds import EVERYTHING, SimulatedCloud, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import Namespaces
from tests.cloud.test_launch import running
from tests.cloud.test_remote_runner import JOB

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not EVERYTHING, reason="a standby takes minutes to take over; make cloud-all runs this"),
]

SERVICE = "spotctl.run.remote_runner.service"
LOSSES: dict[str, Callable[[Namespaces, str], None]] = {"lost": Namespaces.power_off, "cut off": Namespaces.cut}


@pytest.fixture(params=["gcp", "aws", "azure"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.mark.parametrize("lose", LOSSES.values(), ids=list(LOSSES))
def test_a_standby_takes_over_and_nothing_is_bought_twice(
    cloud: SimulatedCloud, tmp_path: Path, lose: Callable[[Namespaces, str], None]
) -> None:
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run("prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type)
    values = {name: getattr(cloud, name) for name in ("identity", "bucket", "region", "type")}
    job, host = laptop.job(JOB.format(cloud=cloud.name, **values)), cloud.host
    assert isinstance(host, Namespaces)

    def names() -> dict[str, str]:
        try:
            return {one.id: host.at(one.private) for one in running(cloud.server)}
        except KeyError:
            return {}  # one of them boots

    with laptop.launched("launch", job, "--yes") as launched:
        launched.wait_for(
            lambda: (
                len(names()) == 2
                and all(host.execute(name, "pgrep", "-f", SERVICE).returncode == 0 for name in names().values())
            )
        )
        place = RunPlace(**json.loads((laptop.home / "elsewhere" / "counting" / "place.json").read_text()))
        before = holder(place)
        launched.kill()
    (first,) = (id_ for id_ in names() if before.endswith(id_))
    lose(host, names()[first])
    laptop.wait_until(lambda: holder(place) != before)
    printed = laptop.run("logs", "counting").stdout
    laptop.wait_until(lambda: len(laptop.run("logs", "counting").stdout) > len(printed))
    (status,) = laptop.answer("status", "counting")["jobs"]
    assert status["state"] == "running"
    ended = laptop.answer("stop", "counting")
    assert ended["outcome"] == "stopped"
    assert running(cloud.server) == []
    assert cloud.server.resources() == ()
    bought = cloud.server.machines()
    assert (sum(one.spot for one in bought), sum(not one.spot for one in bought) <= 2) == (1, True), bought


def holder(place: RunPlace) -> str:
    found = place.claim(LAUNCHER).read()
    return "" if found is None else Claim.from_bytes(found.data).holder
