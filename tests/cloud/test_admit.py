"""`spotctl ssh --admit` on simulated clouds: ssh to the machines of one run comes from another
address; nothing else changes."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from pricing_data.market import NO_ZONE, Market
from pricing_data.units import HOUR
from spotctl.cli.boundary import USAGE
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.wiring import cloud_provider
from spotctl.files.job.reader import load, written
from spotctl.home import config
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG, installation_id
from spotctl.home.paths import Paths
from spotctl.log.events import RunBegan
from spotctl.log.store import EventLog
from tests.cloud.api import now_micros
from tests.cloud.clouds import SimulatedCloud, recorded, sampled
from tests.cloud.host import LAPTOP, Records
from tests.cloud.test_bad_input import JOB
from tests.documented import assert_documented
from tests.spotctl.command_line import spotctl

ZONES = {"aws": "us-east-1a", "gcp": "us-central1-a", "azure": NO_ZONE}


def admitted(cloud: SimulatedCloud) -> dict[str, list[bool]]:
    """Whether the machines of each run let this computer in."""
    assert isinstance(cloud.host, Records)
    found: dict[str, list[bool]] = {}
    for name, machine in zip(cloud.host.running(), cloud.server.machines(), strict=True):
        found.setdefault(run_of(machine.tags), []).append(cloud.host.spec(name).admits_ssh())
    return found


def run_of(tags: object) -> str:
    return "one" if "run-one" in str(tags) else "two"


@pytest.mark.parametrize("name", sampled("aws"))
def test_another_address_is_admitted_to_one_run_and_the_old_one_no_more(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(name) as cloud:
        for variable, value in {
            **cloud.environment,
            "SPOTCTL_HOME": str(tmp_path / "home"),
        }.items():
            monkeypatch.setenv(variable, value)
        job = tmp_path / "job.yaml"
        values = {
            "identity": cloud.identity,
            "region": cloud.region,
            "type": cloud.type,
            "image": "",
        }
        job.write_text(JOB.format(cloud=name, **values))
        settings = config.load(os.environ)
        spec, market = load(job), Market(name, cloud.region, ZONES[name], cloud.type)

        def rent(run: str, token: str) -> None:
            tags = {
                INSTALLATION_TAG: installation_id(settings.home),
                RUN_TAG: run,
                INTENT_TAG: token[-1],
            }
            request = MachineRequest(
                token, market, 1, 10**9, now_micros() + HOUR, tags, identity=cloud.identity
            )
            provider = cloud_provider(settings, [name], [cloud.region])
            with closing(provider):
                provider.create(request)

        with EventLog(Paths(settings.home).log) as log:
            log.append("run-one", 0, RunBegan("refused", name, written(spec), "", 0, None))
        for run in ("run-one", "run-two"):
            rent(run, f"{run}-1")
        before = cloud.server.resources()
        assert admitted(cloud) == {"one": [True], "two": [True]}

        answer = spotctl("ssh", "refused", "--admit", "192.0.2.9/32", "--json").json
        assert_documented("ssh --admit", answer)
        assert (answer["ssh_from"], len(answer["rules"])) == (["192.0.2.9/32"], 1)
        assert admitted(cloud) == {"one": [False], "two": [True]}
        assert cloud.server.resources() == before
        # The rule stands when the run buys more machines with the settings of its launch.
        rent("run-one", "run-one-2")
        assert admitted(cloud) == {"one": [False, False], "two": [True]}
        for address in (f"{LAPTOP[0]}/32", "192.0.2.9/32", f"{LAPTOP[0]}/32"):
            assert spotctl("ssh", "refused", "--admit", address, "--json").code == 0
        assert admitted(cloud) == {"one": [True, True], "two": [True]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("none", "192.0.2.9/32"), "job none has no active run"),
        (("none", "0.0.0.0/0"), "--admit: expected a narrower address range than 0.0.0.0/0"),
        (("none", "here"), "--admit: expected address ranges such as 203.0.113.7/32, not 'here'"),
    ],
)
def test_what_cannot_be_admitted_is_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    job, address = words
    refused = spotctl("ssh", job, "--admit", address, SPOTCTL_HOME=str(tmp_path))
    assert refused.code == USAGE
    assert says in refused.error
