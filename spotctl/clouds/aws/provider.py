"""`AwsProvider`: machines of EC2. It keeps no state: everything is tagged when it is created, and
EC2 is queried by these tags; what is cached here only saves calls.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pricing_data.market import LINUX, Market
from pricing_data.units import MINUTE, parse_time
from spotctl.clouds.aws import inventory, orders
from spotctl.clouds.aws.buyer import Buyer, Networks
from spotctl.clouds.aws.calls import AwsCalls, code_of, in_each
from spotctl.clouds.aws.checks import AwsNeeds
from spotctl.clouds.aws.cloud import AwsMachineSettings, AwsSettings, partition_of
from spotctl.clouds.aws.inventory import machine_of, needs_spot_request, order_of
from spotctl.clouds.aws.orders import (
    CLOUD,
    DISK_TYPE,
    REQUEST,
    TOKEN,
    Row,
    all_tags,
    client_token,
    filters_of,
    machine_id,
    parts_of,
    pool_of,
    request_hash,
)
from spotctl.clouds.aws.permissions import INTERRUPTION, TRIAL_ROLE
from spotctl.clouds.aws.session import AwsSession
from spotctl.clouds.doctor import Requirement
from spotctl.clouds.errors import Answers, NotFound, ProviderError, TokenTaken, Unanswered, each
from spotctl.clouds.provider import Holdings, Machine, MachineRequest, MachineState, Resource
from spotctl.clouds.remote.agents import RentingProvider
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.prices import holdings_of
from spotctl.home.errors import SpotctlError
from spotctl.home.installation import INSTALLATION_TAG
from spotctl.home.quotas import Quota, QuotaUnit

if TYPE_CHECKING:
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings


ACCESS = AwsSettings(max_attempts=3, timeout_seconds=20.0)
"""Few attempts: botocore would also repeat requests for which EC2 has no capacity. A run's loop
repeats its calls."""

_SSH = 22
_SMALL = "t3.micro"
_ANY_REGION = "us-east-1"
_LISTED_AFTER = 5 * MINUTE
"""A list may lack an existing machine that is younger than this (EC2 Developer Guide, Eventual
consistency)."""
_FINAL_STATES = frozenset({"cancelled", "closed", "failed"})
"""States of a spot request that never change again."""
_TERMINATED_AT_A_TIME = 1000
_CHECKS = ("SystemStatus", "InstanceStatus")


class AwsProvider(RentingProvider):
    """EC2 in the regions of the settings; `prices` are its markets."""

    name = CLOUD

    def __init__(
        self,
        session: AwsSession,
        settings: AwsMachineSettings,
        agents: RemoteAgents,
        prices: PriceBook,
    ) -> None:
        self._calls = AwsCalls(session)
        super().__init__(agents, prices)
        self._settings = settings
        self._buyer = Buyer(self._calls, settings)
        self._regions: tuple[str, ...] = settings.regions
        self._seen: dict[str, Row] = {}
        self._ended_requests: dict[str, Row] = {}

    def offers(self) -> tuple[Market, ...]:
        """See `CloudProvider`; the markets with known prices in the regions of the settings."""
        known = (market for market in self._prices.markets(CLOUD) if market.os == LINUX)
        chosen = self._settings.regions
        return tuple(market for market in known if not chosen or market.region in chosen)

    def quotas(self, region: str, instance_types: Collection[str]) -> tuple[Quota, ...]:
        """See `CloudProvider`. Types of unknown families have no quotas."""
        pools = {pool for name in instance_types if (pool := pool_of(name)) is not None}
        quotas: list[Quota] = []
        for pool in sorted(pools):
            for spot in (True, False):
                if not pool.code(spot=spot):
                    continue
                named = {"ServiceCode": "ec2", "QuotaCode": pool.code(spot=spot)}
                answer = self._calls.call("service-quotas", region, "GetServiceQuota", **named)
                vcpus = int(answer["Quota"]["Value"])
                quotas.append(
                    Quota(CLOUD, region, pool.family(spot=spot), vcpus, QuotaUnit.VCPUS, spot=spot)
                )

        return tuple(dict.fromkeys(quotas))

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. One call buys all machines; EC2 recognizes the token of a repeated
        request.
        """
        rows = self._of_token(request)
        if not rows:
            try:
                rows = self._buyer.buy(request, self._agents.start_up(request, CLOUD))
            except TokenTaken:
                # EC2 has seen the token with another request, or with another lease or image of
                # this request, and does not list the machines yet.
                rows = self._of_token(request)
                if not rows:
                    cure = "spotctl asks again until the order's lease has ended"
                    problem = (
                        f"{request.market}: EC2 knows the token {request.token} but lists no "
                        f"machine for it; {cure}"
                    )
                    raise Unanswered(problem) from None

        region = request.market.region
        return tuple(self._machine(row, region) for row in sorted(rows, key=order_of))

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """See `CloudProvider`. EC2 lists a machine for about an hour after its end."""

        def listed(region: str) -> Sequence[Machine]:
            rows = self._rows(region, filters_of(tags))
            requests = self._spot_requests(region, rows)
            return [self._machine(row, region, requests) for row in sorted(rows, key=order_of)]

        machines = tuple(in_each(self._all_regions(), listed))
        self._agents.forget(
            [machine.id for machine in machines if machine.state is MachineState.GONE]
        )
        return machines

    def terminate(self, ids: Sequence[str]) -> None:
        by_region: dict[str, list[str]] = {}
        for parts in map(parts_of, dict.fromkeys(ids)):
            if parts is not None:
                by_region.setdefault(parts[0], []).append(parts[1])

        calls = []
        for region, instances in by_region.items():
            for first in range(0, len(instances), _TERMINATED_AT_A_TIME):
                some = instances[first : first + _TERMINATED_AT_A_TIME]
                calls.append(partial(self._terminate, region, some))
        each(calls)

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...]:
        networks = Networks(self._calls, self._settings)
        admit = partial(networks.admit_ssh, tags=tags, ssh_from=ssh_from)
        return tuple(in_each(self._all_regions(), admit))

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`. Disks and interfaces that end with their machine are left out."""
        company = self._settings.tags
        left_in = partial(inventory.left_in, self._calls, tags=tags, company=company)
        return tuple(in_each(self._all_regions(), left_in))

    def remove(self, resources: Sequence[Resource]) -> None:
        inventory.remove(self._calls, resources, self.terminate)
        self._buyer.forget()

    def holdings(
        self, market: Market, *, spot: bool, disk_gib: int | None, image: str | None = None
    ) -> Holdings:
        least = 0
        # An image that EC2 does not describe cannot be ordered either.
        with suppress(SpotctlError):
            least = self._buyer.least_gib(market, image)
        lists, gib = self._prices.lists(), orders.disk_gib(market.instance_type, disk_gib, least)
        return holdings_of(
            market, lists, DISK_TYPE, gib, spot=spot, public_ip=self._settings.public_ip
        )

    def close(self) -> None:
        super().close()
        self._calls.close()

    @property
    def endpoint(self) -> str:
        return self._calls.endpoint(_ANY_REGION)

    def usual_request(self) -> MachineRequest | None:
        """See `CloudProvider`; in the zone of the first subnet."""
        named, regions = self._settings.subnets, self._settings.regions
        region = regions[0] if regions else self._calls.region
        if region is None:
            return None

        filters = {"subnet-id": named} if named else {"default-for-az": ["true"]}
        subnets = self._calls.described(region, "DescribeSubnets", "Subnets", filters)
        zone = min((row["AvailabilityZone"] for row in subnets), default=f"{region}a")
        market, tags = Market(CLOUD, region, zone, _SMALL), {INSTALLATION_TAG: "spotctl-doctor"}
        role = next(iter(self._settings.roles), None)
        return MachineRequest("check", market, 1, 1_000_000_000, 0, tags, identity=role)

    def checks(self, request: MachineRequest) -> Sequence[Requirement]:
        """See `CloudProvider`."""
        return AwsNeeds(self._buyer, self._settings, request).rows

    def check_order(self, request: MachineRequest) -> str:
        """See `CloudProvider`; a dry run of RunInstances. It makes the security group of the
        run."""
        return self._buyer.check(request, self._agents.start_up(request, CLOUD))

    def simulate_eviction(self, machine: str) -> None:
        """See `CloudProvider`; an experiment of Fault Injection Service."""
        region, instance = self._parts(machine)
        row = self._look(machine)
        if row is None:
            raise NotFound(f"{machine}: gone, or never existed", (machine,))
        interrupt(self._calls, region, instance, all_tags(row).get(INSTALLATION_TAG, ""))

    def console(self, machine: str) -> str:
        """A machine's console output, as far as EC2 shows it by now."""
        region, instance = self._parts(machine)
        try:
            answer = self._calls.ec2(
                region, "GetConsoleOutput", machine, Latest=True, InstanceId=instance
            )
        except ProviderError as error:
            if code_of(error) != "UnsupportedOperation":
                raise
            # Types that are not built on Nitro have only the output that EC2 took after the last
            # boot.
            answer = self._calls.ec2(region, "GetConsoleOutput", machine, InstanceId=instance)

        return str(answer.get("Output") or "")

    def seen_by_cloud(self, machine: str) -> str:
        """See `RentingProvider`; the status checks."""
        region, instance = self._parts(machine)
        answer = self._calls.ec2(region, "DescribeInstanceStatus", machine, InstanceIds=[instance])
        return " ".join(
            row[kind]["Status"] for row in answer["InstanceStatuses"] for kind in _CHECKS
        )

    # -- what exists -------------------------------------------------------------------------------

    def _of_token(self, request: MachineRequest) -> Sequence[Row]:
        """The machines of a token that was used before. TokenTaken: for another request."""
        rows = self._rows(request.market.region, {f"tag:{TOKEN}": [client_token(request)]})
        if any(all_tags(row).get(REQUEST) != request_hash(request) for row in rows):
            cure = "a different request needs a token of its own"
            problem = (
                f"token {request.token} was used for another request in {request.market.region}; "
                f"{cure}"
            )
            raise TokenTaken(problem)
        return rows

    def _all_regions(self) -> tuple[str, ...]:
        """The regions of the settings, or else all that the account has enabled."""
        if not self._regions:
            _, home = partition_of(self._calls.region or _ANY_REGION)
            listed = self._calls.ec2(home, "DescribeRegions")["Regions"]
            self._regions = tuple(sorted(row["RegionName"] for row in listed))
        return self._regions

    def _rows(self, region: str, filters: Mapping[str, Sequence[str]]) -> Sequence[Row]:
        reservations = self._calls.described(region, "DescribeInstances", "Reservations", filters)
        return [row for reservation in reservations for row in reservation["Instances"]]

    def _spot_requests(self, region: str, rows: Sequence[Row]) -> Mapping[str, Row]:
        """The spot requests of ended machines whose end only the request records; each is fetched
        once.
        """
        ids = [row["SpotInstanceRequestId"] for row in rows if needs_spot_request(row)]
        if new := [id_ for id_ in ids if id_ not in self._ended_requests]:
            filters = {"spot-instance-request-id": new}
            listed = self._calls.described(
                region, "DescribeSpotInstanceRequests", "SpotInstanceRequests", filters
            )
            requests = {row["SpotInstanceRequestId"]: row for row in listed}
            self._ended_requests |= {
                id_: row for id_, row in requests.items() if row["State"] in _FINAL_STATES
            }
            return self._ended_requests | requests

        return self._ended_requests

    def _machine(self, row: Row, region: str, requests: Mapping[str, Row] = {}) -> Machine:
        machine = machine_of(
            row, region, self._settings.tags, requests.get(row.get("SpotInstanceRequestId", ""))
        )
        self._seen[machine.id] = row
        return machine

    def _terminate(self, region: str, instances: Sequence[str]) -> None:
        """Ends machines. EC2 ends none if it does not know one of them, so then each machine is
        ended separately.
        """
        try:
            self._calls.ec2(region, "TerminateInstances", InstanceIds=list(instances))
        except NotFound:
            if len(instances) > 1:
                each(partial(self._terminate, region, [instance]) for instance in instances)
            elif self._is_new(machine := machine_id(region, instances[0])):
                cure = "spotctl ends it later"
                raise Unanswered(
                    f"{machine}: EC2 does not know it everywhere yet; {cure}"
                ) from None

    def _is_new(self, machine: str) -> bool:
        """Whether a machine was granted so recently that parts of EC2 may not know it yet."""
        known = self._seen.get(machine)
        return known is not None and parse_time(known["LaunchTime"]) > self.now() - _LISTED_AFTER

    # -- links -------------------------------------------------------------------------------------

    def remote(self, machine: str) -> RemoteMachine:
        row = self._seen.get(machine)
        ended = row is not None and row["State"]["Name"] == "terminated"
        public = self._settings.public_ip and not self._settings.private_ssh
        address = "PublicIpAddress" if public else "PrivateIpAddress"
        if not ended and (row is None or not row.get(address)):
            row = self._look(machine) or row
        if row is None or row["State"]["Name"] == "terminated":
            raise NotFound(f"{machine}: gone (evicted or returned)", (machine,))

        host = row.get(address)
        if not host:
            raise Unanswered(f"{machine}: it has no address yet; try again")
        return RemoteMachine(
            machine,
            int(row.get("AmiLaunchIndex", 0)),
            host,
            _SSH,
            partial(self.console, machine),
            partial(self._is_gone, machine),
        )

    def _is_gone(self, machine: str) -> bool:
        """Whether a machine has ended; False if EC2 does not answer."""
        try:
            row = self._look(machine)
        except ProviderError:
            return False
        if row is None:
            return not self._is_new(machine)
        return bool(row["State"]["Name"] == "terminated")

    def _look(self, machine: str) -> Row | None:
        """EC2's current description of a machine; None: the machine is not listed, because it is
        gone or brand new.
        """
        parts = parts_of(machine)
        if parts is None:
            return None
        rows = self._rows(parts[0], {"instance-id": [parts[1]]})
        if rows:
            self._seen[machine] = rows[0]
        return rows[0] if rows else None

    def _parts(self, machine: str) -> tuple[str, str]:
        parts = parts_of(machine)
        if parts is None:
            raise NotFound(f"{machine}: not a machine of AWS", (machine,))
        return parts


def provider(
    settings: Settings,
    regions: tuple[str, ...],
    agents: RemoteAgents,
    prices: PriceBook,
    answers: Answers,
) -> AwsProvider:
    """See `ProviderPart`."""
    chosen = settings.table(CLOUD, AwsMachineSettings)
    session = AwsSession(ACCESS, answers)
    return AwsProvider(session, replace(chosen, regions=regions or chosen.regions), agents, prices)


_NOTICE = "PT2M"
"""The notice of a real interruption, and the shortest that FIS takes."""
_PATIENCE_SECONDS, _POLL_SECONDS = 120.0, 2.0
_UNDER_WAY = frozenset({"running", "completed"})
_ENDED = frozenset({"failed", "stopped", "stopping", "cancelled"})


def interrupt(calls: AwsCalls, region: str, instance: str, installation: str) -> None:
    """Begins an interruption of a spot machine. ProviderError: FIS could not carry it out."""
    account = calls.call("sts", region, "GetCallerIdentity")["Account"]
    (partition, _), tags = partition_of(region), {INSTALLATION_TAG: installation}
    named = f"arn:{partition}:ec2:{region}:{account}:instance/{instance}"
    role = f"arn:{partition}:iam::{account}:role/{TRIAL_ROLE}"
    machine = {
        "resourceType": "aws:ec2:spot-instance",
        "resourceArns": [named],
        "selectionMode": "ALL",
    }
    interruption = {
        "actionId": INTERRUPTION,
        "parameters": {"durationBeforeInterruption": _NOTICE},
        "targets": {"SpotInstances": "machine"},
    }
    made = calls.call(
        "fis",
        region,
        "CreateExperimentTemplate",
        clientToken=secrets.token_hex(16),
        description="spotctl try: interrupts one spot machine",
        stopConditions=[{"source": "none"}],
        targets={"machine": machine},
        actions={"interrupt": interruption},
        roleArn=role,
        tags=tags,
    )
    template = made["experimentTemplate"]["id"]

    try:
        _carry_out(calls, region, template, tags)
    finally:
        # An experiment goes on without its template.
        calls.call("fis", region, "DeleteExperimentTemplate", id=template)


def _carry_out(calls: AwsCalls, region: str, template: str, tags: dict[str, str]) -> None:
    started = calls.call(
        "fis",
        region,
        "StartExperiment",
        clientToken=secrets.token_hex(16),
        experimentTemplateId=template,
        tags=tags,
    )["experiment"]

    give_up = time.monotonic() + _PATIENCE_SECONDS
    while (status := started["state"]["status"]) not in _UNDER_WAY:
        if status in _ENDED:
            cure = f"see 'spotctl doctor --policy aws-try-role' for the role {TRIAL_ROLE}"
            problem = (
                f"FIS could not interrupt the machine: {started['state'].get('reason', status)}; "
                f"{cure}"
            )
            raise ProviderError(problem)
        if time.monotonic() >= give_up:
            problem = f"FIS has not begun experiment {started['id']} after {_PATIENCE_SECONDS:g} s"
            raise Unanswered(problem)
        time.sleep(_POLL_SECONDS)
        started = calls.call("fis", region, "GetExperiment", id=started["id"])["experiment"]
