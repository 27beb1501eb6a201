"""AWS on 127.0.0.1 with machines behind it: moto's server, in which instances are real.

moto describes networks, images, types, disks, interfaces, tags, IAM, SSM and S3. Replaced or added
here: everything about the life of an instance (`aws_books`), what RunInstances checks
(`aws_orders`), prices, capacity and quotas (`aws_market`), tokens, spot requests, console output,
and lists that lag behind. Each server is one account.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

from moto.core.responses import ActionResult, EmptyResult
from moto.core.types import Base64EncodedString
from moto.ec2.models import ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.iam.models import iam_backends
from moto.s3.models import s3_backends

from spotctl.clouds.aws.permissions import policy
from tests.cloud.api import Left, Rented, now_micros
from tests.cloud.aws_accounts import NewAccount
from tests.cloud.aws_books import (
    BY_USER,
    NO_CAPACITY,
    PRICE,
    SHUT_DOWN_SECONDS,
    Books,
    Lease,
    SpotRequest,
)
from tests.cloud.aws_catalog import (
    publish_advisor,
    publish_prices,
    publish_products,
    publish_scores,
)
from tests.cloud.aws_experiments import FIS_PATHS, Experiments
from tests.cloud.aws_market import AwsMarket, public_image, quota_answer, quota_of
from tests.cloud.aws_metadata import LOOPBACK_KEYS, metadata_of
from tests.cloud.aws_moto import ORIGINALS, SERVERS, admits_ssh, existing_in, install_hooks, without
from tests.cloud.aws_orders import Order, checked, refuse, vcpus_of
from tests.cloud.aws_placement import PlacementGroups
from tests.cloud.aws_reservations import CapacityReservations
from tests.cloud.buckets import RESULTS
from tests.cloud.host import MachineHost, MachineSpec
from tests.servers.aws import (
    ADVISOR_PATH,
    AwsCloud,
    action_of,
    answered_by_moto,
    arguments_of,
    ec2_error,
    price_list_error,
    region_of,
)
from tests.servers.aws_models import misfits
from tests.servers.iam import Access, access_of_target, accesses, allows
from tests.servers.loopback import Fault, Reply, Request, serving

RUNNER = "spotctl"
"""An instance profile that exists from the start."""

OWNER = "AKIDOWNER"
"""The access key of the account's owner, who may do everything."""

_EC2 = "2016-11-15"
"""The version of its API that a request to EC2 names."""

_CONSOLE_BYTES = 64 * 1024
_NOT_SIMULATED = set(
    "CreateFleet RequestSpotInstances RequestSpotFleet StartInstances StopInstances RebootInstances".split()
)
_FIRST_ACCOUNT = 100_000_000_000 + os.getpid() % 1_000_000 * 1000
_accounts = count(_FIRST_ACCOUNT)


@contextmanager
def as_owner() -> Iterator[None]:
    """Clients that are made in the block may do everything in the account."""
    with patch.dict(os.environ, AWS_ACCESS_KEY_ID=OWNER):
        yield


@dataclass
class _Served:
    """What a token was used for."""

    digest: str
    reservation: Any
    leases: list[Lease]


@dataclass
class AwsServer:
    """An account of AWS. `unseen_for`: the number of DescribeInstances calls that do not list a new
    instance yet; `xen_console_seconds`: when the console of a machine without Nitro is first shown.

    The `policy` is the one that we print; `refused` is what it did not allow. `denied` are actions
    that the credentials do not allow either; if they have `expired`, they allow nothing. `breaks`
    schedules faults (`tests.servers.aws.AwsFault`). The image of machines has further `variables`,
    and their roles have `keys`. `checks` are the results of EC2's status checks of instances, which
    otherwise remain `initializing`.
    """

    host: MachineHost
    name: str = "aws"
    unseen_for: int = 0
    xen_console_seconds: float = 600.0
    denied: set[str] = field(default_factory=set)
    expired: bool = False
    has_route: bool = True
    new_account: NewAccount = field(default_factory=NewAccount)
    policy: Mapping[str, Any] | None = field(default_factory=policy)
    refused: list[Access] = field(default_factory=list)
    market: AwsMarket = field(default_factory=AwsMarket)
    prices: AwsCloud = field(default_factory=AwsCloud)
    variables: dict[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=LOOPBACK_KEYS.copy)
    checks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        install_hooks()
        self.account = str(next(_accounts))
        self.books = Books(self.host)
        self.placement = PlacementGroups()
        self.reservations = CapacityReservations()
        self.experiments = Experiments(self.account, self.books)
        self._served: dict[tuple[str, str], _Served] = {}
        self._stack = ExitStack()
        self.server = self._stack.enter_context(serving(self))
        self._inside = self.host.reach(int(self.server.url.rpartition(":")[2]))
        SERVERS[self.account] = self
        iam_backends[self.account]["aws"].create_instance_profile(RUNNER, "/", [])
        # Names of buckets are shared by all accounts.
        self.bucket = f"{RESULTS}-{self.account}"
        s3_backends[self.account]["aws"].create_bucket(self.bucket, "us-east-1")

    # -- the protocol of API servers ---------------------------------------------------------------

    def environment(self) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.server.url,
            "AWS_ACCESS_KEY_ID": "AKIDLOOPBACK",
            "AWS_SECRET_ACCESS_KEY": "loopback",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "SPOTCTL_AWS_SPOT_ADVISOR_URL": self.server.url + ADVISOR_PATH,
        }

    def machines(self) -> tuple[Rented, ...]:
        with self.books.lock:
            now = now_micros()
            return tuple(lease.rented(now) for lease in self.books.leases.values())

    def resources(self) -> tuple[Left, ...]:
        with self.books.lock:
            groups = (
                Left("placement group", one.name, dict(one.tags)) for one in self.placement.all()
            )
            of_moto = (
                Left(kind, one.id, {tag["key"]: tag["value"] for tag in one.get_tags()})
                for backend in ec2_backends[self.account].values()
                for kind, found in existing_in(backend)
                for one in found
            )
            return (*of_moto, *groups)

    def evict(self, machine: str, warning_seconds: float | None) -> None:
        self.books.evict(self.books.running(machine), NO_CAPACITY, warning_seconds)

    def close(self) -> None:
        self._stack.close()
        self.books.close()
        del SERVERS[self.account]
        for region in list(ec2_backends[self.account]):
            del ec2_backends[self.account][region]

    # -- what a test does to a cloud ---------------------------------------------------------------

    def breaks(self, *faults: Fault) -> None:
        """Schedules faults."""
        self.server.faults.extend(faults)

    def calls(self) -> Counter[str]:
        """How often each action was called."""
        return Counter(action_of(request) for request in self.server.requests)

    def recommend_rebalance(self, machine: str) -> None:
        """Announces in a machine's metadata that its risk of eviction is higher."""
        self.books.running(machine).metadata.rebalance_at = now_micros()

    def set_spot_price(
        self, zone: str, instance_type: str, usd: float, warning_seconds: float | None = 120.0
    ) -> None:
        """Changes a price from now on; machines that would not pay it are evicted."""
        self.market.spot_changes(zone, instance_type).append((now_micros(), usd))
        for lease in list(self.books.leases.values()):
            at = (lease.zone, lease.instance.instance_type)
            if (
                lease.running
                and at == (zone, instance_type)
                and lease.max_price is not None
                and lease.max_price < usd
            ):
                self.books.evict(lease, PRICE, warning_seconds)

    def forget_ended(self) -> None:
        """Stops listing instances that have ended, as EC2 does after about an hour."""
        for backend in list(ec2_backends[self.account].values()):
            for reservation in backend.reservations.values():
                reservation.instances = [
                    one for one in reservation.instances if one.state != "terminated"
                ]

    # -- requests ----------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        if self.account not in SERVERS:
            # Connections that were kept open outlive the server.
            return Reply(lost=True)
        if refusal := self._malformed(request) or self._denial(request):
            return refusal
        # moto's records are not thread-safe.
        with self.books.lock:
            reply = (
                _dry_run(request) or self._added(request) or answered_by_moto(request, self.account)
            )
        # Among the errors of the server, in the EC2 API Reference.
        return (
            replace(reply, status=500)
            if b"<Code>InsufficientInstanceCapacity<" in reply.body
            else reply
        )

    def _malformed(self, request: Request) -> Reply | None:
        """The refusal of a request that differs from botocore's model of its service; files have
        none.
        """
        form = request.headers.get("content-type", "").startswith(
            "application/x-www-form-urlencoded"
        )
        is_call = form or "x-amz-target" in request.headers or request.path.startswith(FIS_PATHS)
        problems = misfits(request) if is_call else ()
        code = (
            "InvalidParameterValue"
            if any("not one of" in one for one in problems)
            else "UnknownParameter"
        )
        return ec2_error(code, "; ".join(problems)) if problems else None

    def _denial(self, request: Request) -> Reply | None:
        action = action_of(request)
        if action in _NOT_SIMULATED:
            return ec2_error(
                "UnsupportedOperation", f"{action} would make or change instances without machines"
            )
        if action in self.denied:
            return ec2_error(
                "UnauthorizedOperation", "You are not authorized to perform this operation.", 403
            )
        if not self._is_allowed(request):
            return self._unauthorized(request)
        return _expired(request) if self.expired else None

    def _is_allowed(self, request: Request) -> bool:
        """Whether the policy that `spotctl doctor --policy aws` prints allows a request to a
        service that it covers.
        """
        if self.policy is None or OWNER in request.headers.get("authorization", ""):
            return True
        with self.books.lock:
            refused = [
                access for access in self._accesses(request) if not allows(self.policy, access)
            ]
        self.refused += refused
        return not refused

    def _accesses(self, request: Request) -> list[Access]:
        arguments = arguments_of(request)
        if arguments.get("Version") == _EC2:
            return accesses(self.account, region_of(request), arguments)
        access = access_of_target(
            request.headers.get("x-amz-target", ""), region_of(request), request
        )
        return [access] if access else []

    def _unauthorized(self, request: Request) -> Reply:
        """AWS's answer; EC2 names an action that no policy allows."""
        if "x-amz-target" in request.headers:
            return price_list_error(
                "AccessDeniedException", "no identity-based policy allows the action"
            )
        action = self.refused[-1].action
        user = f"arn:aws:iam::{self.account}:user/launcher"
        text = (
            f"User: {user} is not authorized to perform: {action} on resource: * because no "
            "identity-based policy"
        )
        return ec2_error(
            "UnauthorizedOperation",
            f"You are not authorized to perform this operation. {text}",
            403,
        )

    def _added(self, request: Request) -> Reply | None:
        """The answer of a service that moto lacks."""
        target = request.headers.get("x-amz-target", "")
        if request.path.startswith(FIS_PATHS):
            return self.experiments.answer(request)
        if request.path == ADVISOR_PATH:
            publish_advisor(self.prices)
            return self.prices.answer(request)
        if target.startswith("AWSPriceListService."):
            publish_products(
                self.prices,
                self.market,
                {one["Field"]: one["Value"] for one in request.json()["Filters"]},
            )
            return self.prices.answer(request)
        if action_of(request) == "DescribeRouteTables" and self.has_route:
            self._route_out(ec2_backends[self.account][region_of(request)])
        if target == "ServiceQuotasV20190624.GetServiceQuota":
            found = quota_answer(self.market.quotas, request.json())
            return (
                Reply.of_json(found)
                if found
                else price_list_error("NoSuchResourceException", "no such quota")
            )
        if target == "AmazonSSM.GetParameter":
            image = public_image(
                request.json()["Name"], ec2_backends[self.account][region_of(request)]
            )
            return Reply.of_json(image) if image else None
        return None

    def _route_out(self, backend: Any) -> None:  # noqa: ANN401  # moto's
        """Gives a default network its gateway, which moto leaves out."""
        (network,) = [one for one in backend.vpcs.values() if one.is_default in (True, "true")]
        if not backend.describe_internet_gateways(filters={"attachment.vpc-id": [network.id]}):
            gateway = backend.create_internet_gateway()
            backend.attach_internet_gateway(gateway.id, network.id)
            (table,) = backend.describe_route_tables(
                filters={"vpc-id": network.id, "association.main": "true"}
            )
            backend.create_route(table.id, "0.0.0.0/0", gateway_id=gateway.id)

    def run_instances(self, response: Any) -> ActionResult:  # noqa: ANN401  # moto's
        order = checked(response, response.ec2_backend)
        self.placement.check(response.region, order)
        self.reservations.check(order)
        self.new_account.check_profile(order)
        response.error_on_dryrun()
        self.new_account.check(order, self.account, self.policy)
        if served := self._served.get((response.region, order.token)):
            return _served_again(served, order)
        granted = self._grant(response.region, order)
        response.params["MinCount"] = granted
        result: ActionResult = ORIGINALS["run_instances"](response)
        reservation: Any = result.result
        if not order.reservation:
            self.market.take(order.zone, order.type, granted)
        leases = [self._lease(one, order, response.region) for one in reservation.instances]
        self.placement.join(response.region, order.placement_group, leases)
        self.reservations.join(order, leases)
        if order.token:
            self._served[response.region, order.token] = _Served(order.digest, reservation, leases)
        return result

    def _grant(self, region: str, order: Order) -> int:
        """How many machines the order gets. Reserved ones take nothing of the market, and count
        against no quota.
        """
        if order.reservation:
            return self.reservations.granted(order)
        if order.spot:
            price, limit = self.market.spot(order.zone, order.type), order.max_price
            if limit is not None and limit < price:
                raise refuse(
                    "SpotMaxPriceTooLow",
                    f"Your Spot request price of {limit} is lower than the minimum required Spot "
                    f"request fulfillment price of {price}.",
                )
        self._check_quota(region, order)
        free = self.market.free(order.zone, order.type)
        if free < order.least:
            raise refuse(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {order.type} capacity in the Availability "
                f"Zone you requested ({order.zone}).",
            )
        return int(min(free, order.most))

    def _check_quota(self, region: str, order: Order) -> None:
        code = quota_of(order.type, spot=order.spot)
        held = sum(
            vcpus_of(lease.instance.instance_type)
            for lease in self.books.leases.values()
            if lease.running
            and lease.region == region
            and lease.spot == order.spot
            and quota_of(lease.instance.instance_type, spot=lease.spot) == code
        )
        if held + order.vcpus * order.most <= self.market.quotas[code]:
            return
        if order.spot:
            raise refuse("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        raise refuse(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of "
            f"{self.market.quotas[code]:.0f}"
            " allows for the instance bucket that the specified instance type belongs to.",
        )

    def _lease(self, instance: Any, order: Order, region: str) -> Lease:  # noqa: ANN401
        request = None
        if order.spot:
            limit = order.max_price or self.market.on_demand(order.type)
            request_id = "sir-" + instance.id[-8:]
            tags = dict(order.tags.get("spot-instances-request", {}))
            request = SpotRequest(instance.ec2_backend, request_id, instance, f"{limit:.6f}", tags)
            instance.ec2_backend.spot_instance_requests[request_id] = request
            instance.spot_instance_request_id, instance.lifecycle = request_id, "spot"
            instance.instance_lifecycle = "spot"
        for interface in instance.nics.values():
            interface.add_tags(dict(order.tags.get("network-interface", {})))
        lease = Lease(
            instance=instance,
            region=region,
            user_data=order.user_data,
            behavior=order.behavior,
            max_price=order.max_price,
            request=request,
            price=self._price_of(order),
            metadata=metadata_of(instance, order, region, self.account, self.keys),
            unseen=self.unseen_for,
        )
        self.books.leases[lease.name] = lease
        variables = {
            "AWS_ENDPOINT_URL": f"http://{self._inside}",
            "AWS_DEFAULT_REGION": region,
            **self.variables,
        }
        firewall = partial(admits_ssh, instance)
        spec = MachineSpec(lease.name, order.user_data, lease.metadata.answer, variables, firewall)
        lease.private, lease.public = self.host.start(spec, self.books.ended_by_itself)
        _set_addresses(lease)
        return lease

    def _price_of(self, order: Order) -> Callable[[], list[tuple[int, float]]]:
        if order.spot:
            return lambda: self.market.spot_changes(order.zone, order.type)
        return lambda: [(self.market.since, self.market.on_demand(order.type))]

    def terminate_instances(self, response: Any) -> ActionResult:  # noqa: ANN401
        ids = response._get_param("InstanceIds", [])
        response.error_on_dryrun()
        instances = [response.ec2_backend.get_instance(one) for one in ids]
        rows = []
        for one in instances:
            before = {"Code": one.state_code, "Name": one.state}
            lease = self.books.leases[one.id]
            if lease.stopped is not None:
                lease.stopped = None
            self.books.end(lease, BY_USER, SHUT_DOWN_SECONDS)
            now = {"Code": one.state_code, "Name": one.state}
            rows.append({"InstanceId": one.id, "PreviousState": before, "CurrentState": now})
        return ActionResult({"TerminatingInstances": rows})

    def describe_instances(self, response: Any) -> ActionResult:  # noqa: ANN401
        asked = set(response._get_param("InstanceIds", []))
        unseen = {lease.name for lease in self.books.leases.values() if lease.unseen > 0}
        for name in unseen:
            self.books.leases[name].unseen -= 1
        if missing := sorted(asked & unseen):
            raise refuse(
                "InvalidInstanceID.NotFound", f"The instance ID '{missing[0]}' does not exist"
            )
        result: ActionResult = ORIGINALS["describe_instances"](response)
        listed: Any = result.result
        listed["Reservations"] = [
            seen for one in listed["Reservations"] if (seen := without(one, unseen)).instances
        ]
        return result

    def describe_instance_status(self, response: Any) -> ActionResult:  # noqa: ANN401
        rows = list[dict[str, Any]]()
        for name in response._get_param("InstanceIds", []):
            state = response.ec2_backend.get_instance(name).state
            passed = {"Status": self.checks.get(name, "initializing")}
            rows += (
                [{"InstanceId": name, "InstanceStatus": passed, "SystemStatus": passed}]
                if state == "running"
                else []
            )
        return ActionResult({"InstanceStatuses": rows})

    def describe_spot_price_history(self, response: Any) -> ActionResult:  # noqa: ANN401
        filters = response._filters_from_querystring()
        asked = response._get_param("InstanceTypes", []) or filters.get("instance-type", [])
        publish_prices(self.prices, self.market, response.region, asked)
        # Without times, what is in force now.
        response.params.setdefault("StartTime", datetime.now(UTC))
        response.params.setdefault("EndTime", datetime.now(UTC) + timedelta(seconds=1))
        return self.prices.price_history(response)

    def get_spot_placement_scores(self, response: Any) -> ActionResult:  # noqa: ANN401
        publish_scores(self.prices, response.ec2_backend, response._get_param("InstanceTypes", []))
        return self.prices.placement_scores(response)

    def cancel_spot_instance_requests(self, response: Any) -> ActionResult:  # noqa: ANN401
        known = response.ec2_backend.spot_instance_requests
        ids = response._get_param("SpotInstanceRequestIds", [])
        for one in ids:
            if one not in known:
                raise refuse(
                    "InvalidSpotInstanceRequestID.NotFound",
                    f"The spot request ID '{one}' is unknown",
                )
            known[one].state = "cancelled"
        return ActionResult(
            {
                "CancelledSpotInstanceRequests": [
                    {"SpotInstanceRequestId": one, "State": "cancelled"} for one in ids
                ]
            }
        )

    def get_console_output(self, response: Any) -> ActionResult:  # noqa: ANN401
        instance = response.ec2_backend.get_instance(response._get_param("InstanceId"))
        if INSTANCE_TYPES[instance.instance_type].get("Hypervisor") == "xen":
            return self._console_of_xen(response, instance)
        text = self.host.console(instance.id).encode()[-_CONSOLE_BYTES:].decode(errors="replace")
        output = Base64EncodedString.from_raw_string(text)
        return ActionResult(
            {"InstanceId": instance.id, "Timestamp": datetime.now(UTC), "Output": output}
        )

    def _console_of_xen(self, response: Any, instance: Any) -> ActionResult:  # noqa: ANN401
        """EC2 shows the console of a machine without Nitro only as it was at some moments, the
        first after its boot.
        """
        if response._get_param("Latest") in (True, "true"):
            raise refuse(
                "UnsupportedOperation",
                "This instance type does not support retrieving the latest console logs.",
            )
        is_posted = (
            now_micros() - self.books.leases[instance.id].started
            >= self.xen_console_seconds * 1_000_000
        )
        text = self.host.console(instance.id) if is_posted else ""
        output = Base64EncodedString.from_raw_string(text)
        return ActionResult(
            {"InstanceId": instance.id, "Timestamp": datetime.now(UTC), "Output": output}
        )

    def create_placement_group(self, response: Any) -> ActionResult:  # noqa: ANN401
        return self.placement.create(response)

    def describe_placement_groups(self, response: Any) -> ActionResult:  # noqa: ANN401
        return self.placement.describe(response)

    def delete_placement_group(self, response: Any) -> ActionResult:  # noqa: ANN401
        return self.placement.delete(response)

    def delete_security_group(self, response: Any) -> ActionResult:  # noqa: ANN401
        backend, wanted = response.ec2_backend, response._get_param("GroupId")
        if any(wanted in {group.id for group in eni.group_set} for eni in backend.enis.values()):
            raise refuse("DependencyViolation", f"resource {wanted} has a dependent object")
        return ORIGINALS["delete_security_group"](response) or EmptyResult()


def _dry_run(request: Request) -> Reply | None:
    """The answer to a dry run, except to that of an order, which is checked first; moto would carry
    out some.
    """
    if arguments_of(request).get("DryRun") != "true" or action_of(request) == "RunInstances":
        return None
    return ec2_error(
        "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
    )


def _expired(request: Request) -> Reply:
    if "x-amz-target" in request.headers:
        return price_list_error(
            "ExpiredTokenException", "The security token included in the request is expired"
        )
    return ec2_error("RequestExpired", "Request has expired.")


def _served_again(served: _Served, order: Order) -> ActionResult:
    if served.digest != order.digest:
        raise refuse(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in previous "
            "request(s).",
        )
    if all(lease.ended is not None for lease in served.leases):
        raise refuse(
            "IdempotentInstanceTerminated",
            "The instance that was launched with this client token has been terminated.",
        )
    return ActionResult(served.reservation)


def _set_addresses(lease: Lease) -> None:
    (interface, *_) = lease.instance.nics.values()
    interface.private_ip_address = lease.private
    interface.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": lease.private}]
    if interface.public_ip is not None:
        interface.public_ip = lease.public
    facts = dict(lease.metadata.facts)
    facts |= {
        "local-ipv4": lease.private,
        **({"public-ipv4": lease.public} if interface.public_ip else {}),
    }
    lease.metadata.facts = facts
