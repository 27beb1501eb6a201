"""A cloud and its store that fail for two minutes: the job is done all the same."""

from __future__ import annotations

import pytest

from tests.cloud.clouds import WHOLE_RUN
from tests.cloud.outages import MACHINE, outlived

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aws", "DescribeInstances"),
        ("aws", "PUT answer"),
        ("aws", "PUT ended"),
        ("aws", "RunInstances"),
        ("aws", "TerminateInstances"),
        ("gcp", "POST instances"),
        ("azure", "PUT ended"),
    ],
)
def test_an_outage_that_begins_with_a_request(name: str, kind: str) -> None:
    assert outlived(name, kind)[kind]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_an_outage_at_the_end_of_a_run_with_a_runner_on_a_machine(name: str) -> None:
    assert outlived(name, "PUT answer", runner=MACHINE)["PUT answer"]
