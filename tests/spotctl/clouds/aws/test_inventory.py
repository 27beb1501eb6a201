"""When and why machines ended, in EC2's words and in the contract's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pricing_data.units import parse_time, to_micros
from spotctl.clouds.aws.inventory import machine_of
from spotctl.clouds.aws.orders import parts_of
from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import NotFound, Unanswered
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.provider import EndReason, MachineRequest, MachineState
from tests.cloud.host import Records
from tests.servers.aws import AwsFault, ec2_error
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, SETTINGS, provider
from tests.spotctl.clouds.unreached import Unreached

ORDER = MachineRequest("t1", MARKET, 1, BID, 4_000_000_000 * 1_000_000, {"run": "a"})
LATER = datetime(2099, 1, 31, 10, 12, 34, tzinfo=UTC)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("Server.SpotInstanceTermination", EndReason.EVICTED),
        ("Server.SpotInstanceShutdown", EndReason.EVICTED),
        ("Client.UserInitiatedShutdown", EndReason.RETURNED),
        ("Client.InstanceInitiatedShutdown", EndReason.LEASE_ENDED),
        ("Server.InsufficientInstanceCapacity", EndReason.FAILED),
        ("Server.InternalError", EndReason.FAILED),
        ("Server.ScheduledStop", EndReason.FAILED),
        ("Client.InternalError", EndReason.FAILED),
        ("Client.VolumeLimitExceeded", EndReason.FAILED),
        ("Client.InvalidSnapshot.NotFound", EndReason.FAILED),
        ("Something.New", EndReason.FAILED),
    ],
)
def test_the_code_of_the_state_says_why_a_machine_ended(
    ec2: Ec2, code: str, reason: EndReason
) -> None:
    (machine,) = provider().create(ORDER)
    ec2.end(machine.id, code, LATER)
    (gone,) = provider().list({"run": "a"})
    assert (gone.state, gone.end_reason, gone.ended) == (
        MachineState.GONE,
        reason,
        to_micros(LATER),
    )
    assert bool(gone.failure) == (reason is EndReason.FAILED)
    assert ("kms:CreateGrant" in gone.failure) == (code == "Client.InternalError")
    assert not ec2.asked("DescribeSpotInstanceRequests")


def test_an_end_without_a_date_is_that_of_the_spot_request(ec2: Ec2) -> None:
    (machine,) = provider().create(ORDER)
    ec2.end(machine.id, "Server.SpotInstanceTermination", LATER, dated=False)
    (gone,) = provider().list({"run": "a"})
    assert (gone.end_reason, gone.ended) == (EndReason.EVICTED, to_micros(LATER))


def test_a_spot_request_that_is_done_is_asked_for_once(ec2: Ec2) -> None:
    here = provider()
    (machine,) = here.create(ORDER)
    ec2.end(machine.id, "Server.SpotInstanceTermination", LATER, dated=False)
    request = ec2.lease(machine.id).request
    assert request is not None
    request.state = "active"
    first = here.list({"run": "a"})
    request.state = "closed"
    assert first == here.list({"run": "a"}) == here.list({"run": "a"})
    assert len(ec2.asked("DescribeSpotInstanceRequests")) == 2


def test_an_end_that_nothing_dates_has_no_date(ec2: Ec2) -> None:
    (machine,) = provider().create(
        MachineRequest("t1", MARKET, 1, None, ORDER.lease_until, {"run": "a"})
    )
    ec2.end(machine.id, "Server.InternalError", LATER, dated=False)
    (gone,) = provider().list({"run": "a"})
    assert (gone.state, gone.end_reason, gone.ended) == (MachineState.GONE, EndReason.FAILED, None)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("pending", MachineState.STARTING),
        ("running", MachineState.RUNNING),
        ("shutting-down", MachineState.LEAVING),
        ("stopping", MachineState.LEAVING),
        ("stopped", MachineState.LEAVING),
        ("terminated", MachineState.GONE),
    ],
)
def test_every_state_of_an_instance_has_a_meaning(state: str, expected: MachineState) -> None:
    machine = machine_of({**ROW, "State": {"Name": state}}, "us-east-1", {})
    assert machine.state is expected
    assert (machine.ended is not None) == (expected is MachineState.GONE)


def test_nothing_ends_before_it_began() -> None:
    """EC2 dates ends to the second."""
    row = {**ROW, "LaunchTime": "2026-01-31T10:12:34.700Z", "State": {"Name": "terminated"}}
    machine = machine_of(row, "us-east-1", {})
    assert machine.ended == machine.started == parse_time("2026-01-31T10:12:34.700Z")


def test_only_our_ids_have_parts() -> None:
    assert parts_of("aws:us-east-1:i-1") == ("us-east-1", "i-1")
    for other in ("", "i-1", "aws:us-east-1", "aws::i-1", "gcp:us-central1-a:x", "aws:us-east-1:"):
        assert parts_of(other) is None


def test_a_machine_is_reached_at_its_public_address_or_where_there_is_none_at_the_private_one(
    ec2: Ec2,
) -> None:
    agents = Unreached()
    here = provider(agents=agents)
    (machine,) = here.create(ORDER)
    here.list({})
    here.link(machine.id)
    here.prepare(machine, MachineSupplies())
    (linked, (prepared, _)) = agents.linked[0], agents.prepared[0]
    lease = ec2.lease(machine.id)
    assert linked.host == prepared.host == lease.public
    assert (linked.id, linked.index, linked.port) == (machine.id, 0, 22)
    assert here.invocation(machine.id, ("df",)).words == ("ssh", linked.host, "df")
    inside = provider(SETTINGS.__class__(ssh_from=("10.0.0.0/8",), public_ip=False), agents)
    inside.link(machine.id)
    assert agents.linked[-1].host == lease.private == machine.address


def test_an_agent_that_does_not_answer_is_gone_only_if_ec2_says_so(ec2: Ec2) -> None:
    agents = Unreached()
    here = provider(agents=agents)
    (machine,) = here.create(ORDER)
    here.link(machine.id)
    gone = agents.linked[0].gone
    assert not gone()
    # The list of a new machine may be late, and a list that fails says nothing.
    ec2.hidden = 1
    assert not gone()
    ec2.server.faults.append(
        AwsFault(
            "/", ec2_error("RequestLimitExceeded", status=503), action="DescribeInstances", times=2
        )
    )
    assert not gone()
    ec2.end(machine.id, "Server.SpotInstanceTermination", LATER)
    assert gone()
    with pytest.raises(NotFound, match=r"gone \(evicted or returned\)"):
        here.link(machine.id)


def test_a_machine_without_an_address_is_asked_for_again(ec2: Ec2) -> None:
    (machine,) = provider().create(ORDER)
    ec2.lease(machine.id).instance.nics[0].public_ip = None
    with pytest.raises(Unanswered, match="no address yet"):
        provider().link(machine.id)


def test_the_console_is_read_as_it_is_now(ec2: Ec2) -> None:
    here = provider()
    (machine,) = here.create(ORDER)
    assert isinstance(ec2.host, Records)
    ec2.host.write_console(ec2.lease(machine.id).name, "key 1")
    assert here.console(machine.id) == "key 1"
    assert ec2.asked("GetConsoleOutput")[0]["Latest"] == "true"
    # Types without Nitro have no newer output than that of the boot.
    ec2.server.faults.append(
        AwsFault("/", ec2_error("UnsupportedOperation"), action="GetConsoleOutput")
    )
    assert here.console(machine.id) == "key 1"
    assert "Latest" not in ec2.asked("GetConsoleOutput")[-1]


ROW = {
    "InstanceId": "i-1",
    "InstanceType": "c5.large",
    "LaunchTime": "2026-01-31T10:00:00.000Z",
    "Placement": {"AvailabilityZone": "us-east-1a"},
    "StateReason": {"Code": "Client.UserInitiatedShutdown"},
    "StateTransitionReason": "User initiated (2026-01-31 10:12:34 GMT)",
}


def test_a_machine_that_has_ended_is_not_asked_for_again(ec2: Ec2) -> None:
    """`spotctl logs -f` asks several times a second for each machine."""
    cloud = provider()
    (machine,) = cloud.create(ORDER)
    cloud.terminate([machine.id])
    ec2.wait()
    cloud.list(ORDER.tags)
    before = len(ec2.asked("DescribeInstances"))
    for _ in range(3):
        with pytest.raises(NotFound):
            cloud.link(machine.id)
    assert len(ec2.asked("DescribeInstances")) == before


def test_status_checks_are_signs_of_a_boot_whose_console_is_late(
    ec2: Ec2, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotctl.clouds.remote.agents.CHECKED_EVERY_SECONDS", 0.0)
    here = provider()
    (machine,) = here.create(ORDER)
    assert here.boot_sign(machine.id) == BootSign("running", "initializing initializing")
    ec2.checks[machine.id.rpartition(":")[2]] = "ok"
    assert here.boot_sign(machine.id) == BootSign("running", "ok ok")
    ec2.denied.add("DescribeInstanceStatus")
    assert here.boot_sign(machine.id) == BootSign("running", "ok ok"), (
        "nothing more is seen, and nothing ends"
    )
