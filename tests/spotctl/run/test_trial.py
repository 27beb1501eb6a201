"""The machine of a first launch."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pricing_data.catalog import Catalog, InstanceType, MachineTraits
from pricing_data.library import Selection
from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.log.events import RunBegan
from spotctl.log.state import Held, RunState
from spotctl.run.trial import conduct
from spotctl.run.trial.conduct import TrialPatience, trial_job

TYPES = (
    InstanceType("aws", "t3.nano", 1, 0.5),
    InstanceType("aws", "t3.small", 1, 2.0, traits=MachineTraits(baseline=0.2)),
    InstanceType("aws", "m6g.medium", 1, 4.0, traits=MachineTraits(architecture="arm64")),
    InstanceType("aws", "c6i.large", 2, 4.0),
    InstanceType("aws", "c6a.large", 2, 4.0),
    InstanceType("aws", "p3.small", 1, 8.0, "V100", 1),
    InstanceType("aws", "m6i.large", 2, 8.0),
)


def library(*names: str) -> Any:  # noqa: ANN401 - what a trial asks of a library
    markets = [Market("aws", "us-east-1", "us-east-1a", name) for name in names]
    catalog = Catalog(TYPES, ())

    def select(chosen: Selection) -> list[Market]:
        return [one for one in markets if chosen.matches(one, catalog)]

    return SimpleNamespace(catalog=catalog, select=select)


# A path.
def test_the_smallest_machine_that_can_run_the_agent_is_chosen(tmp_path: Any) -> None:  # noqa: ANN401
    known = library(*(one.name for one in TYPES), "x9.unknown")
    spec = trial_job("aws", ["us-east-1"], known, tmp_path)
    assert (spec.name, spec.budget, spec.resources.regions) == ("try-aws", 10**9, ("us-east-1",))
    assert spec.resources.types == ("c6a.large",)


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_without_prices_it_says_how_to_fetch_them(region: str, tmp_path: Path) -> None:
    known = library("t3.nano", *(["c6a.large"] if region != "us-east-1" else []))
    with pytest.raises(BadRequest, match=f"spotctl prices fetch --cloud aws --region {region}"):
        trial_job("aws", [region], known, tmp_path)


def waited(minutes: int, refusal: str = "", *machines: Held) -> tuple[list[str], list[str]]:
    """What a trial says after so many minutes, and why it asks its run to stop."""
    spec = loads(
        "name: try-aws\nkind: command\nrun: echo\nresources: {clouds: [aws], types: [c6a.large]}\n",
        Path(__file__),
    )
    said: list[str] = []
    asked: list[str] = []
    began = RunBegan("try-aws", "aws", {}, "", 0)
    state = RunState(
        run="r", began=began, refusal=refusal, machines={held.id: held for held in machines}
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            conduct, "request_stop", lambda _job, _settings, request: asked.append(request.message)
        )
        patience = TrialPatience(
            spec, Settings(Path("/nowhere")), said.append, lambda: minutes * MINUTE
        )
        patience.look(state)
        patience.look(state)
    return said, asked


def test_a_trial_says_each_refusal_once_and_gives_up_in_time() -> None:
    assert waited(1) == ([], [])
    assert waited(1, "no capacity") == (["refused: no capacity; trying again"], [])
    _, asked = waited(11, "no capacity")
    assert asked == [
        "gave up: no c6a.large was running after 10 minutes (the last refusal: no capacity)"
    ]
    assert waited(11, "") == (
        [],
        ["gave up: no c6a.large was running after 10 minutes; spotctl doctor checks the account"],
    )


def test_a_trial_whose_machine_runs_is_not_given_up() -> None:
    assert waited(11, "", Held("aws:1", 1, 0, 0, running=True, ran=5)) == ([], [])
