from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2]:
    with running_ec2(monkeypatch, Ec2) as world:
        yield world
