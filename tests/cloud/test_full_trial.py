"""`spotctl try CLOUD --full` on simulated clouds: every step passes, its record is redacted, and
nothing is left.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cloud.aws import AwsServer
from tests.cloud.clouds import EVERYTHING, SimulatedCloud, sampled, simulated
from tests.cloud.laptop import Laptop
from tests.documented import reference

pytestmark = [
    pytest.mark.cloud,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not EVERYTHING, reason="takes minutes; make cloud-all runs it"),
]

_PATIENCE_SECONDS = 2200.0
WRITER = "spotctl.run.trial.record:as_json"
SECOND_KIND = {"aws": "m6i.large", "azure": "Standard_D4s_v5", "gcp": "n2-standard-4"}
STEPS = (
    "account orders machines token lease launcher eviction checkpoint training runner left".split()
)


@pytest.mark.parametrize("name", sampled("aws"))
def test_every_step_of_a_full_trial_passes(tmp_path: Path, name: str) -> None:
    with simulated(name) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        for type_ in {cloud.type, SECOND_KIND[name]}:
            laptop.run(
                "prices", "fetch", "--cloud", name, "--region", cloud.region, "--type", type_
            )
        with laptop.launched("try", name, "--full", "--yes", "--json", *options(cloud)) as launched:
            out, err = launched.process.communicate(timeout=_PATIENCE_SECONDS)
        assert launched.process.returncode == 0, err + out
        keep_record(out)
        record = json.loads(out)
        assert reference()["without_meaning"](WRITER, record) == []
        assert list(dict.fromkeys(step["name"] for step in record["steps"])) == STEPS
        assert {step["outcome"] for step in record["steps"]} == {"passed"}
        assert (record["passed"], record["real"], record["bill"]) == (True, False, None)
        assert 0 < record["most_usd"] < 1
        for private in (cloud.bucket, cloud.identity, str(tmp_path)):
            assert private in ("default", "spotctl") or private not in out
        assert cloud.server.resources() == ()
        assert all(machine.ended is not None for machine in cloud.server.machines())
        if isinstance(cloud.server, AwsServer):
            assert (cloud.server.refused, cloud.server.experiments.refused) == ([], [])


def options(cloud: SimulatedCloud) -> list[str]:
    kinds = ["--type", cloud.type, "--type", SECOND_KIND[cloud.name]]
    identity = ["--identity", cloud.identity] if cloud.name == "aws" else []
    return ["--region", cloud.region, "--bucket", f"{cloud.bucket}/trial", *kinds, *identity]


def keep_record(text: str) -> None:
    """Keeps the record where SPOTCTL_TEST_RECORDS says, for tests/records."""
    if folder := os.environ.get("SPOTCTL_TEST_RECORDS"):
        record = json.loads(text)
        Path(folder, f"simulated-{record['cloud']}.json").write_text(text)
