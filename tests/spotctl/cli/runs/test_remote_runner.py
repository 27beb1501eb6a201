"""Commands about runs whose runner is elsewhere."""

from __future__ import annotations

import pytest

from spotctl.home.errors import BadRequest
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl


def test_a_place_makes_resume_attach_to_the_run_there(
    monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    places: list[str] = []

    def attached(_: object, place: str) -> None:
        places.append(place)
        raise BadRequest("nothing is there")

    monkeypatch.setattr("spotctl.cli.runs.remote_runner.attached", attached)
    approved(spotctl("resume", "s3://bucket/x/spotctl/x-1"))
    assert places == ["s3://bucket/x/spotctl/x-1"]
