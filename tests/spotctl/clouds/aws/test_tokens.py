"""A token buys once: lost answers, late lists, capacity for a part, and machines that are gone
already.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.units import HOUR
from spotctl.clouds.errors import NoCapacity, NotFound, TokenTaken, Unanswered
from spotctl.clouds.provider import MachineRequest, MachineState
from spotctl.home.installation import INSTALLATION_TAG
from tests.servers.aws import AwsFault, ec2_error
from tests.servers.loopback import Reply
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import BID, ELSEWHERE, MARKET, provider

ORDER = MachineRequest("t1", MARKET, 3, BID, 4_000_000_000 * 1_000_000, {INSTALLATION_TAG: "i1"})


def test_an_answer_lost_after_success_buys_nothing_twice(ec2: Ec2) -> None:
    # Also all repetitions by the SDK get no answer, so the caller does not know.
    ec2.server.faults.append(LostAnswer(2))
    with pytest.raises(Unanswered):
        provider().create(ORDER)
    assert len(ec2.machines()) == 3
    machines = provider().create(ORDER)
    assert {one.id.split(":")[-1] for one in machines} == {one.id for one in ec2.machines()}
    assert len(machines) == 3


def test_an_answer_that_the_sdk_asks_for_again_buys_nothing_twice(ec2: Ec2) -> None:
    ec2.lost_after = "RunInstances"
    assert len(provider().create(ORDER)) == 3
    assert len(ec2.asked("RunInstances")) == 2
    assert len(ec2.machines()) == 3


def test_machines_that_are_not_listed_yet_are_recognized_by_their_token(ec2: Ec2) -> None:
    first = provider().create(ORDER)
    ec2.hidden = 1
    again = provider().create(ORDER)
    assert [one.id for one in again] == [one.id for one in first]
    assert len(ec2.machines()) == 3


def test_a_repeated_request_with_another_lease_waits_for_the_list(ec2: Ec2) -> None:
    first = provider().create(ORDER)
    later = replace(ORDER, lease_until=ORDER.lease_until + HOUR)
    ec2.hidden = 2
    with pytest.raises(Unanswered, match="lists no machine for it"):
        provider().create(later)
    ec2.hidden = 1
    assert [one.id for one in provider().create(later)] == [one.id for one in first]
    assert len(ec2.machines()) == 3


def test_a_token_whose_machines_ended_and_are_listed_no_more_buys_none(ec2: Ec2) -> None:
    first = provider().create(ORDER)
    provider().terminate([one.id for one in first])
    ec2.wait()
    ec2.hidden = 10
    with pytest.raises((TokenTaken, Unanswered)):
        provider().create(ORDER)
    ec2.hidden = 0
    assert [one.state for one in provider().create(ORDER)] == [MachineState.GONE] * 3
    assert len(ec2.machines()) == 3


def test_capacity_for_a_part_is_taken_and_the_token_is_used(ec2: Ec2) -> None:
    ec2.market.capacity["us-east-1a", "c5.large"] = 2
    first = provider().create(ORDER)
    assert len(first) == 2
    ec2.market.capacity["us-east-1a", "c5.large"] = 5
    assert [one.id for one in provider().create(ORDER)] == [one.id for one in first]
    assert len(ec2.machines()) == 2


def test_a_refused_token_can_be_tried_again(ec2: Ec2) -> None:
    ec2.market.capacity["us-east-1a", "c5.large"] = 0
    with pytest.raises(
        NoCapacity, match=r"aws/us-east-1/us-east-1a/c5.large: .*InsufficientInstanceCapacity"
    ):
        provider().create(ORDER)
    ec2.market.capacity["us-east-1a", "c5.large"] = 9
    assert len(provider().create(ORDER)) == 3


@pytest.mark.usefixtures("ec2")
def test_two_installations_may_use_the_same_token() -> None:
    ours = provider().create(ORDER)
    theirs = provider().create(replace(ORDER, tags={INSTALLATION_TAG: "i2"}))
    assert {one.id for one in ours}.isdisjoint(one.id for one in theirs)
    assert {one.id for one in provider().list({INSTALLATION_TAG: "i2"})} == {
        one.id for one in theirs
    }


@pytest.mark.parametrize(
    ("code", "group"),
    [
        ("InvalidGroup.NotFound", "security group"),
        ("InvalidPlacementGroup.Unknown", "placement group"),
    ],
)
def test_a_new_group_that_is_not_known_everywhere_yet_is_waited_for(
    ec2: Ec2, code: str, group: str
) -> None:
    ec2.server.faults.append(AwsFault("/", ec2_error(code), action="RunInstances"))
    here = provider()
    with pytest.raises(Unanswered, match=f"does not know its new {group} yet"):
        here.create(ORDER)
    assert len(here.create(ORDER)) == 3
    assert len(ec2.asked("CreateSecurityGroup")) == 1


def test_a_group_that_was_removed_is_made_again(ec2: Ec2) -> None:
    here = provider()
    machines = here.create(ORDER)
    here.terminate([one.id for one in machines])
    ec2.wait()
    here.remove(here.resources({}))
    assert len(here.create(replace(ORDER, token="t2"))) == 3
    assert len(ec2.asked("CreateSecurityGroup")) == 2


def test_ids_that_ec2_does_not_know_do_not_keep_others_alive(ec2: Ec2) -> None:
    here = provider()
    machines = here.create(ORDER)
    here.terminate(
        [
            "aws:us-east-1:i-00000000000000000",
            *(one.id for one in machines),
            "gcp:us-central1-a:x",
            "never",
        ]
    )
    ec2.wait()
    assert {one.state for one in here.list({})} == {MachineState.GONE}


def test_a_machine_that_was_never_rented_has_no_link(ec2: Ec2) -> None:
    for id_ in ("aws:us-east-1:i-00000000000000000", "never-0", "gcp:a:b"):
        with pytest.raises(NotFound, match="gone"):
            provider().link(id_)
    assert ec2.asked("DescribeInstances")


class LostAnswer(AwsFault):
    """The next answers to RunInstances are lost after the request was carried out."""

    def __init__(self, times: int) -> None:
        super().__init__("/", None, times=times, action="RunInstances")

    def applied(self, reply: Reply) -> Reply:  # noqa: ARG002 - as a fault has it
        return ec2_error("InternalError", "lost", 500)


def test_a_new_machine_that_is_not_known_everywhere_is_not_forgotten(ec2: Ec2) -> None:
    cloud = provider()
    (machine,) = cloud.create(replace(ORDER, count=1))
    unknown = AwsFault("/", ec2_error("InvalidInstanceID.NotFound"), action="TerminateInstances")
    ec2.server.faults.append(unknown)
    with pytest.raises(Unanswered, match="does not know it everywhere yet"):
        cloud.terminate([machine.id])
    cloud.terminate([machine.id])
    ec2.wait()
    assert ec2.lease(machine.id).ended is not None


def test_a_region_that_is_down_keeps_no_machine_of_another_running(ec2: Ec2) -> None:
    cloud = provider()
    (there,) = cloud.create(replace(ORDER, token="t0", market=ELSEWHERE, count=1))
    (here,) = cloud.create(replace(ORDER, count=1))
    down = AwsFault("/", ec2_error("Unavailable", status=503), region="us-west-2", times=9)
    ec2.server.faults.append(down)
    with pytest.raises(Unanswered):
        cloud.terminate([there.id, here.id])
    ec2.wait()
    assert ec2.lease(here.id).ended is not None
