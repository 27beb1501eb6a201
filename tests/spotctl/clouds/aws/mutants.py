"""Deliberate bugs of the provider of AWS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing_data.units import SECOND
from spotctl.clouds.aws import buyer, inventory, orders
from spotctl.clouds.aws.buyer import Buyer
from spotctl.clouds.aws.calls import AwsCalls
from spotctl.clouds.aws.orders import TOKEN, Row, client_token
from spotctl.clouds.aws.permissions import KINDS
from spotctl.clouds.aws.provider import AwsProvider
from spotctl.clouds.aws.session import Service
from spotctl.clouds.errors import NoCapacity, NotFound, ProviderError
from spotctl.clouds.provider import EndReason, MachineRequest, MachineState
from spotctl.home.installation import INSTALLATION_TAG
from tests.cloud.host import Records
from tests.servers.loopback import Request
from tests.spotctl.clouds.aws import standins
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2
from tests.spotctl.clouds.aws.standins import BID, ELSEWHERE, MARKET, UNKNOWN
from tests.spotctl.clouds.contract import ProviderContract, Setting
from tests.spotctl.clouds.markets import python
from tests.spotctl.clouds.provider_mutation import ProviderMutant

ORDER = MachineRequest("t1", MARKET, 2, BID, 4_000_000_000 * 1_000_000, {INSTALLATION_TAG: "i1"})
Arguments = dict[str, Any]


@contextmanager
def account() -> Iterator[Ec2]:
    with pytest.MonkeyPatch.context() as environment, running_ec2(environment, Ec2) as ec2:
        yield ec2


def contract(test: Callable[[Any, Setting], None]) -> Callable[[Path], None]:
    def trial(_: Path) -> None:
        with account():
            pause: Callable[[float], None] = lambda _: None  # noqa: E731
            setting = Setting(
                standins.provider(),
                MARKET,
                BID,
                UNKNOWN,
                python(""),
                pause,
                slack=SECOND,
                patience_seconds=20.0,
            )
            test(ProviderContract(), setting)

    return trial


def on(test: Callable[[Ec2], None]) -> Callable[[Path], None]:
    def trial(_: Path) -> None:
        with account() as ec2:
            test(ec2)

    return trial


# -- trials: what the server of EC2 knows ----------------------------------------------------------


def lost_answer(ec2: Ec2) -> None:
    ec2.lost_after = "RunInstances"
    standins.provider().create(ORDER)
    ec2.hidden = 1
    standins.provider().create(ORDER)
    assert len(ec2.machines()) == ORDER.count


def everything_is_tagged(ec2: Ec2) -> None:
    standins.provider().create(ORDER)
    found = ec2.resources()
    assert {one.kind for one in found} >= {
        "instance",
        "volume",
        "network interface",
        "security group",
        "spot request",
    }
    assert all(one.tags.get(INSTALLATION_TAG) == "i1" for one in found), found


def shut_down_from_inside(ec2: Ec2) -> None:
    (machine,) = standins.provider().create(replace(ORDER, count=1))
    assert isinstance(ec2.host, Records)
    ec2.host.end(ec2.lease(machine.id).name)
    (gone,) = standins.provider().list({})
    assert (gone.state, gone.end_reason) == (MachineState.GONE, EndReason.LEASE_ENDED)
    assert {one.kind for one in ec2.resources()} == {"security group"}


def evicted(ec2: Ec2) -> None:
    (machine,) = standins.provider().create(replace(ORDER, count=1))
    ec2.evict(ec2.lease(machine.id).name, None)
    ec2.wait()
    (gone,) = standins.provider().list({})
    assert gone.end_reason is EndReason.EVICTED
    assert {one.kind for one in ec2.resources()} == {"security group"}


def metadata_needs_a_token(ec2: Ec2) -> None:
    standins.provider().create(replace(ORDER, count=1))
    assert isinstance(ec2.host, Records)
    (name,) = ec2.host.running()
    request = Request("GET", "/latest/meta-data/instance-id", {}, {}, b"")
    assert ec2.host.ask(name, request).status == 401


def disks_are_encrypted(ec2: Ec2) -> None:
    standins.provider().create(ORDER)
    assert all(volume.encrypted for volume in ec2.backend("us-east-1").volumes.values())


def no_capacity_is_said(ec2: Ec2) -> None:
    ec2.market.capacity["us-east-1a", "c5.large"] = 0
    with pytest.raises(NoCapacity):
        standins.provider().create(ORDER)


def a_part_is_taken(ec2: Ec2) -> None:
    ec2.market.capacity["us-east-1a", "c5.large"] = 1
    assert len(standins.provider().create(ORDER)) == 1


def a_bid_is_a_limit(ec2: Ec2) -> None:
    ec2.set_spot_price("us-east-1a", "c5.large", 0.2)
    with pytest.raises(NoCapacity):
        standins.provider().create(ORDER)


def all_pages_are_read(ec2: Ec2) -> None:
    here = standins.provider()
    for number in range(4):
        here.create(replace(ORDER, token=f"t{number}", count=1))
    ec2.page = 3
    assert len(here.list({})) == 4


def all_regions_are_listed(_: Ec2) -> None:
    here = standins.provider()
    here.create(replace(ORDER, market=ELSEWHERE))
    assert len(here.list({})) == 2


def unknown_ids_keep_no_machine_alive(ec2: Ec2) -> None:
    here = standins.provider()
    machines = here.create(ORDER)
    here.terminate([*(one.id for one in machines), "aws:us-east-1:i-00000000000000000"])
    ec2.wait()
    assert {one.state for one in here.list({})} == {MachineState.GONE}


def no_port_is_open_to_the_world(ec2: Ec2) -> None:
    standins.provider().create(ORDER)
    groups = ec2.backend("us-east-1").describe_security_groups()
    rules = [rule for group in groups if group.name != "default" for rule in group.ingress_rules]
    assert {rule.cidr_ipv4 for rule in rules} == {None, "203.0.113.7/32"}


def others_are_left_alone(ec2: Ec2) -> None:
    here = standins.provider()
    here.create(ORDER)
    here.create(replace(ORDER, tags={INSTALLATION_TAG: "i2"}))
    here.remove(here.resources({INSTALLATION_TAG: "i2"}))
    ec2.wait()
    assert [one.state for one in here.list(ORDER.tags)] == [MachineState.RUNNING] * 2


def nothing_is_left(ec2: Ec2) -> None:
    here = standins.provider()
    here.create(ORDER)
    here.remove(here.resources(ORDER.tags))
    ec2.wait()
    assert not ec2.resources()


# -- bugs ------------------------------------------------------------------------------------------


def ordered(**changes: object) -> Callable[..., Arguments]:
    """`order` with other arguments; None leaves one out."""

    def order(*given: Any, **named: Any) -> Arguments:  # noqa: ANN401
        made = {**orders.order(*given, **named), **changes}
        return {name: value for name, value in made.items() if value is not None}

    return order


def disk(**changes: object) -> Callable[..., Arguments]:
    usual = orders._disk

    def faulty(*given: Any) -> Arguments:  # noqa: ANN401
        made = usual(*given)
        return {**made, "Ebs": {**made["Ebs"], **changes}}

    return faulty


def only_the_instance_is_tagged(*given: Any) -> list[Arguments]:  # noqa: ANN401
    return _USUAL_TAGS(*given)[:1]


_USUAL_TAGS = orders._tags


def swallowed(self: Buyer, request: MachineRequest, user_data: str) -> Sequence[Row]:
    try:
        return _USUAL_BUY(self, request, user_data)
    except (ProviderError, NotFound):
        return ()


_USUAL_BUY = Buyer.buy


def first_page(
    self: AwsCalls, service: Service, region: str, operation: str, holding: str, **asked: object
) -> list[Row]:
    return list(self.call(service, region, operation, "", **asked)[holding])


def whole_batch(self: AwsProvider, region: str, instances: Sequence[str]) -> None:
    try:
        self._calls.ec2(region, "TerminateInstances", InstanceIds=list(instances))
    except NotFound:
        return


def any_lease(self: AwsProvider, request: MachineRequest) -> Sequence[Row]:
    return self._rows(request.market.region, {f"tag:{TOKEN}": [client_token(request)]})


def _aws(
    name: str, where: object, attribute: str, fault: object, trial: Callable[[Path], None]
) -> ProviderMutant:
    return ProviderMutant("aws", name, where, attribute, fault, trial)


class _Random:
    """A token that is another one each time."""

    count = 0

    def __call__(self, _: MachineRequest) -> str:
        self.count += 1
        return f"{self.count:064}"


OF_AWS = (
    _aws(
        "machines are bought without a token",
        buyer,
        "order",
        ordered(ClientToken=None),
        on(lost_answer),
    ),
    _aws("a repeated request gets a new token", orders, "client_token", _Random(), on(lost_answer)),
    _aws(
        "nothing is tagged",
        buyer,
        "order",
        ordered(TagSpecifications=None),
        contract(ProviderContract.test_machines_are_created_as_requested),
    ),
    _aws(
        "only instances are tagged",
        orders,
        "_tags",
        only_the_instance_is_tagged,
        on(everything_is_tagged),
    ),
    _aws(
        "a machine that shuts down is only stopped",
        buyer,
        "order",
        ordered(InstanceInitiatedShutdownBehavior=None),
        on(shut_down_from_inside),
    ),
    _aws(
        "metadata without a token",
        buyer,
        "order",
        ordered(MetadataOptions={"HttpTokens": "optional"}),
        on(metadata_needs_a_token),
    ),
    _aws(
        "disks are not encrypted", orders, "_disk", disk(Encrypted=False), on(disks_are_encrypted)
    ),
    _aws(
        "disks outlive their machines",
        orders,
        "_disk",
        disk(DeleteOnTermination=False),
        on(evicted),
    ),
    _aws("a refusal is swallowed", Buyer, "buy", swallowed, on(no_capacity_is_said)),
    _aws("all or nothing is bought", buyer, "order", ordered(MinCount=2), on(a_part_is_taken)),
    _aws(
        "the bid is not passed on",
        buyer,
        "order",
        ordered(InstanceMarketOptions={"MarketType": "spot"}),
        on(a_bid_is_a_limit),
    ),
    _aws("only the first page is read", AwsCalls, "rows", first_page, on(all_pages_are_read)),
    _aws(
        "only one region is listed",
        AwsProvider,
        "_all_regions",
        lambda _: ("us-east-1",),
        on(all_regions_are_listed),
    ),
    _aws(
        "one unknown id keeps all alive",
        AwsProvider,
        "_terminate",
        whole_batch,
        on(unknown_ids_keep_no_machine_alive),
    ),
    _aws(
        "an eviction looks like a return",
        inventory,
        "_REASONS",
        {"Server.SpotInstanceTermination": EndReason.RETURNED},
        on(evicted),
    ),
    _aws(
        "ssh is open to the world",
        buyer,
        "rules_of",
        lambda group, _: [
            {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]},
            {
                "IpProtocol": "tcp",
                "FromPort": 22,
                "ToPort": 22,
                "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
            },
        ],
        on(no_port_is_open_to_the_world),
    ),
    _aws(
        "a token serves any request",
        AwsProvider,
        "_of_token",
        any_lease,
        contract(ProviderContract.test_a_token_belongs_to_one_request),
    ),
    _aws(
        "gc takes what others own",
        inventory,
        "filters_of",
        lambda _: {"tag-key": [INSTALLATION_TAG]},
        on(others_are_left_alone),
    ),
    _aws("security groups are forgotten", inventory, "KINDS", KINDS[:-1], on(nothing_is_left)),
)
