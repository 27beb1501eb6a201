"""The machine of a runner is lost, or only cut off: a standby goes on with the run, and nothing is
bought twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pricing_data.units import SECOND, parse_time
from spotctl.agent.data.locations import place_of
from spotctl.run.environment import LAUNCHER
from spotctl.run.remote_runner.fence import Claim
from spotctl.run.remote_runner.place import RunPlace
from tests.cloud.clouds import EVERYTHING, SimulatedCloud, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.namespaces import Namespaces
from tests.cloud.outages import doors
from tests.cloud.test_launch import running
from tests.cloud.test_remote_runner import JOB
from tests.servers.loopback import Fault, Reply

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not EVERYTHING, reason="a standby takes minutes to take over; make cloud-all runs this"
    ),
]

SERVICE = "spotctl.run.remote_runner.service"
LOSSES: dict[str, Callable[[Namespaces, str], None]] = {
    "lost": Namespaces.power_off,
    "cut off": Namespaces.cut,
}


@pytest.fixture(params=["gcp", "aws", "azure"])
def cloud(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@contextmanager
def moved(
    cloud: SimulatedCloud, folder: Path
) -> Iterator[tuple[Laptop, RunPlace, Callable[[], dict[str, str]]]]:
    """A run with a runner and a standby on machines, whose launcher was killed; the machines' hosts
    by their ids.
    """
    laptop = Laptop(folder, cloud.environment)
    laptop.run(
        "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
    )
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
                and all(
                    host.execute(name, "pgrep", "-f", SERVICE).returncode == 0
                    for name in names().values()
                )
            )
        )
        launched.kill()
    yield (
        laptop,
        RunPlace(**json.loads((laptop.home / "elsewhere" / "counting" / "place.json").read_text())),
        names,
    )


@pytest.mark.parametrize("lose", LOSSES.values(), ids=list(LOSSES))
def test_a_standby_takes_over_and_nothing_is_bought_twice(
    cloud: SimulatedCloud, tmp_path: Path, lose: Callable[[Namespaces, str], None]
) -> None:
    host = cloud.host
    assert isinstance(host, Namespaces)
    with moved(cloud, tmp_path) as (laptop, place, names):
        before = holder(place)
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
        assert (sum(one.spot for one in bought), sum(not one.spot for one in bought) <= 2) == (
            1,
            True,
        ), bought


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_a_run_whose_runner_and_standby_are_dead_is_ended_from_here(
    cloud: SimulatedCloud, tmp_path: Path, signal: str
) -> None:
    """The machines would go on until their leases end."""
    host = cloud.host
    assert isinstance(host, Namespaces)
    with moved(cloud, tmp_path) as (laptop, place, names):
        output = place_of(f"{place.location}/output", LAUNCHER)
        assert output is not None
        laptop.wait_until(lambda: any(output.bucket.list(output.prefix)))
        for name in names().values():
            host.execute(name, "pkill", f"-{signal}", "-f", SERVICE)
        laptop.wait_until(lambda: "was last heard of at" in laptop.run("status", "counting").stderr)
        hint = laptop.run("status", "counting").stderr
        assert re.search(
            r"the last lease ends at 2.*'spotctl stop counting' returns its machines", hint
        )
        stopped = laptop.run("stop", "counting")
        assert stopped.returncode == 0
        assert (
            "to hear that its run ends; if it does not, or is silent for 35 s, this computer"
            in stopped.stderr
        )
        assert "2 machines returned" in stopped.stderr
        assert running(cloud.server) == []
        assert laptop.run("logs", "counting").stdout
        assert cloud.server.resources() == ()


@pytest.mark.parametrize("signal", ["KILL", "CONT"])
def test_a_run_whose_store_is_silent_keeps_no_machine(
    cloud: SimulatedCloud, tmp_path: Path, signal: str
) -> None:
    """Nobody can tell whether its runner lives. If it does, it is on one of the machines that are
    returned.
    """
    host, silence = (
        cloud.host,
        Fault(urlsplit(cloud.bucket).netloc.split("@")[0], times=-1, delay_seconds=1000.0),
    )
    assert isinstance(host, Namespaces)
    with moved(cloud, tmp_path) as (laptop, _, names):
        for name in names().values():
            host.execute(name, "pkill", f"-{signal}", "-f", SERVICE)
        for door in doors(cloud):
            door.faults.append(silence)
        stopped = laptop.run("stop", "counting")
        assert (stopped.returncode, stopped.stderr.count("\nreturned ")) == (1, 2), stopped.stderr
        assert "the claim of run counting-" in stopped.stderr
        assert (
            "'spotctl stop counting' writes down the end of the run once its object store answers"
            in stopped.stderr
        )
        assert running(cloud.server) == []
        for door in doors(cloud):
            door.faults.remove(silence)
        ends(laptop)
        assert running(cloud.server) == []
        assert cloud.server.resources() == ()
        assert len(cloud.server.machines()) == 2


def test_a_stop_is_over_in_time_though_cloud_and_store_are_silent(
    cloud: SimulatedCloud, tmp_path: Path
) -> None:
    """It says what may go on, until when, and what that costs. The next one ends the run."""
    silence = Fault("", Reply(503), times=-1, delay_seconds=1000.0)
    with moved(cloud, tmp_path) as (laptop, _, _):
        laptop.run("status", "counting")
        for door in doors(cloud):
            door.faults.append(silence)
        stopped = laptop.run("stop", "counting")
        assert stopped.returncode == 1, stopped.stderr
        first, *_, last = (
            parse_time(one) for one in re.findall(r"until (\S+Z) at the latest", stopped.stderr)
        )
        # The first wait ends 20 s after the command began.
        assert last - first <= 40 * SECOND, stopped.stderr
        assert f"{cloud.name}: not searched: no answer within" in stopped.stderr
        going_on = (
            r"shut themselves down by 2\S+Z, .*; of those that the log knows, \S+, \S+, "
            r"an hour costs at most \$0\."
        )
        assert re.search(going_on, stopped.stderr), stopped.stderr
        for door in doors(cloud):
            door.faults.remove(silence)
        ends(laptop)
        assert running(cloud.server) == []
        assert cloud.server.resources() == ()


def ends(laptop: Laptop) -> None:
    """Stops the run. On a busy computer, a store that answers may count as silent: then the user
    tries again.
    """
    laptop.wait_until(lambda: laptop.run("stop", "counting").returncode == 0)
    (status,) = laptop.answer("status", "counting")["jobs"]
    assert status["state"] == "stopped"


def holder(place: RunPlace) -> str:
    found = place.claim(LAUNCHER).read()
    return "" if found is None else Claim.from_bytes(found.data).holder
