"""`spotctl doctor` on simulated clouds: an account that lacks nothing, and one that lacks a
permission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cloud.aws import AwsServer
from tests.cloud.azure import AzureServer
from tests.cloud.clouds import SimulatedCloud, recorded, sampled
from tests.cloud.gcp import GcpServer
from tests.cloud.test_bad_input import JOB
from tests.servers.chains import chains
from tests.servers.loopback import Request
from tests.spotctl.command_line import spotctl


@pytest.mark.parametrize("name", sampled("gcp"))
def test_it_finds_what_a_simulated_cloud_lacks_and_nothing_else(name: str) -> None:
    with recorded(name) as cloud:
        found = levels(cloud)
        assert (found.pop("permissions not tried", None) == "note") is (name == "aws")
        assert (found.pop("not checked", None) == "note") is (name != "aws")
        assert set(found.values()) == {"good"}
        assert "permissions" in found
        if isinstance(cloud.server, GcpServer):
            cloud.server.denied.add("compute.instances.create")
            assert levels(cloud)["permissions"] == "no access"


def levels(cloud: SimulatedCloud) -> dict[str, str]:
    findings = spotctl("doctor", "--json", **cloud.environment).json["findings"]
    return {one["what"]: one["level"] for one in findings if one["about"] == cloud.name}


@pytest.mark.parametrize(
    ("name", "doctor", "plan"), [("aws", 8, 6), ("azure", 7, 3), ("gcp", 4, 3)]
)
def test_nothing_is_asked_twice_and_few_answers_are_waited_for_in_turn(
    name: str, doctor: int, plan: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 200 ms for each answer, the longest chain takes 1.6 s.

    Of two threads that ask the same, the later one waits for the chain of the other: these are the
    lengths with the longest of all orders in which threads may ask.
    """
    # On a busy computer, a request would be sent again after a few seconds.
    monkeypatch.setattr(f"spotctl.clouds.{name}.doctor.TIMEOUT_SECONDS", 60.0)
    with recorded(name) as cloud:
        market = ("--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type)
        job = tmp_path / "job.yaml"
        text = JOB.format(
            cloud=name, identity=cloud.identity, image="", region=cloud.region, type=cloud.type
        )
        job.write_text(f"{text}hours: 1h\n")
        for words, longest in (
            (("prices", "fetch", *market), None),
            (("doctor", name), doctor),
            (("plan", job, "--check"), plan),
        ):
            before = len(requests(cloud))
            with chains() as counted:
                ended = spotctl(*words, **cloud.environment)
            assert ended.code == 0, ended
            asked = Counter(
                (one.method, one.path, str(one.query), one.body) for one in requests(cloud)[before:]
            )
            assert asked
            assert [question for question, times in asked.items() if times > 1] == []
            if longest is not None:
                assert 0 < counted.longest <= longest


def requests(cloud: SimulatedCloud) -> Sequence[Request]:
    if isinstance(cloud.server, GcpServer):
        return cloud.server.http.requests
    assert isinstance(cloud.server, AwsServer | AzureServer)
    return cloud.server.server.requests
