from __future__ import annotations

from collections.abc import Iterator

import pytest

from spotctl.clouds.aws import calls
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2]:
    # On a busy computer no region of the simulated cloud answers in time.
    monkeypatch.setattr(calls, "REGION_SECONDS", 300.0)
    with running_ec2(monkeypatch, Ec2) as world:
        yield world
