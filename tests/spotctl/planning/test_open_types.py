"""Plans of six jobs that name no machine types, at list prices of each cloud; spot costs 30% of them."""

from __future__ import annotations

import pytest

from spotctl.home.errors import BadRequest, SpotctlError
from tests.spotctl.planning import open_types
from tests.spotctl.planning.open_types import COMMAND, JOBS, PLACES, planned

CHOSEN = {
    "a command": ("c6i.large", "e2-standard-2", "Standard_F2s_v2"),
    # Two types at the same price per vCPU are not mixed if a machine of one does eight times the work of the other's.
    "a training of 8 machines": ("c6i.4xlarge", "e2-standard-16", "Standard_F2s_v2"),
    "an A100": ("p4d.24xlarge", "a2-highgpu-1g", "Standard_NC24ads_A100_v4"),
    "an H100": ("p5.48xlarge", "a3-highgpu-8g", "Standard_NC40ads_H100_v5"),
    "a T4": ("g4dn.xlarge", "n1-standard-4+1-nvidia-tesla-t4", "Standard_NC4as_T4_v3"),
    "on ARM": ("c7g.large", "t2a-standard-2", "Standard_D2ps_v5"),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("cloud", PLACES)
def test_a_job_without_types_gets_what_a_practitioner_would_take(job: str, cloud: str) -> None:
    text, more = JOBS[job]
    plan = planned(text, cloud, more)
    names = {choice.rent.offer.market.instance_type for choice in plan.cost.choice}
    assert names == set(CHOSEN[job][list(PLACES).index(cloud)].split())


def test_the_documentation_has_the_choices() -> None:
    page = open_types.PAGE.read_text()
    assert page == open_types.written(page), "run python -m tests.spotctl.planning.open_types"


@pytest.mark.parametrize(
    ("cloud", "types", "problem"),
    [
        ("aws", "[t4g.nano]", "us-east-1a/t4g.nano: it is arm64, and the job x86_64"),
        ("aws", "[p3.2xlarge]", "p3.2xlarge: AWS's image has no driver for its V100; name an image that does"),
        ("azure", "[Standard_A1_v2]", "Standard_A1_v2: it boots only images of generation 1"),
        ("azure", "[Standard_NC6s_v3]", "Standard_NC6s_v3: its cloud has retired it"),
        ("gcp", "['*v100']", "tesla-v100: Google's image has no driver for its V100"),
    ],
)
def test_a_named_type_that_does_not_suit_is_refused_in_one_line(cloud: str, types: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        planned(COMMAND, cloud, f", types: {types}")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_of_several_named_types_those_that_do_not_suit_are_rejected_with_the_reason() -> None:
    plan = planned(COMMAND, "aws", ", types: [t4g.nano, c6i.large]")
    assert plan.cost.choice[0].rent.offer.market.instance_type == "c6i.large"
    rejected = {market.market.instance_type: market.why for market in plan.rejected}
    assert "it is arm64" in rejected["t4g.nano"]


def test_burstable_types_that_a_job_wants_are_compared_by_their_baseline() -> None:
    plan = planned(COMMAND, "aws", ", burstable: true")
    assert plan.cost.choice[0].rent.offer.market.instance_type == "c6i.large"
    plan = planned(COMMAND, "aws", ", types: ['t3.*']")
    (choice,) = plan.cost.choice
    assert (choice.rent.offer.market.instance_type, choice.rent.offer.nu) == ("t3.small", 0.4)


def test_nothing_that_suits_is_an_error_with_a_reason() -> None:
    with pytest.raises(SpotctlError, match="none of the 16 matching markets can be used"):
        planned(COMMAND, "aws", ", memory: 4 TiB")
