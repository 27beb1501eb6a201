"""`GcpServer`: the part of Compute Engine that rents machines, with the machines behind it.

Requests are checked by `tests.cloud.gcp_fields`, and answers are the SDK's own messages. Requests
of the price source (regions, advice, the price list) go to `tests.servers.gcp`. Operations are
carried out in threads, as they are in the cloud: `insert` and `delete` answer before anything has
happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from ipaddress import ip_address, ip_network
from typing import Any

from google.cloud import compute_v1
from google.protobuf.json_format import MessageToDict

from spotctl.clouds.gcp.session import ACT_AS
from tests.cloud.api import Left, Rented, now_micros
from tests.cloud.buckets import GoogleBuckets
from tests.cloud.gcp_admin import GcpAdmin
from tests.cloud.gcp_fields import check_instance, check_name, checked
from tests.cloud.gcp_filters import filter_of
from tests.cloud.gcp_policies import PlacementPolicies
from tests.cloud.gcp_prices import prices_of
from tests.cloud.gcp_project import HOST, LAPTOP, GcpProject, account_of
from tests.cloud.gcp_reservations import Reservations
from tests.cloud.host import LAPTOP as LAPTOP_ADDRESSES, MachineHost
from tests.cloud.images import images
from tests.servers.gcp import PROJECT, Refused
from tests.servers.loopback import LoopbackServer, Reply, Request, serving

UNREACHABLE = compute_v1.Warning(code="UNREACHABLE", message="A given scope cannot be reached.")
_WAIT_SECONDS = 20.0
_ZONE = r"/zones/(?P<zone>[^/]+)"
_REGION = r"/regions/(?P<region>[^/]+)"
_PROJECT = r"/compute/v1/projects/(?P<project>[^/]+)"
_TESTED = rf"/v1/projects/({PROJECT}|-/serviceAccounts/[^/]+):testIamPermissions"


class GcpServer:
    """One project on 127.0.0.1. See `tests.cloud.api.ApiServer`.

    `refuse` makes creations fail later, in their operation; `faults` of `http` make any call fail
    at once. Machines younger than `listed_late_seconds` are missing in lists, and zones that are
    `unreachable` do not answer lists. `denied` are permissions that callers lack. `notice_seconds`
    is the notice of simulated evictions.
    """

    name = "gcp"

    def __init__(self, host: MachineHost, zones: Mapping[str, Sequence[str]] | None = None) -> None:
        self.project, self._open = GcpProject(host), ExitStack()
        regions = zones or {
            "us-central1": ("us-central1-a", "us-central1-b"),
            "asia-east1": ("asia-east1-a",),
        }
        self._prices = prices_of(regions)
        self.quotas = {"CPUS": 2400.0, "PREEMPTIBLE_CPUS": 0.0}
        self.project_quotas: dict[str, float] = {}
        self._firewalls: dict[str, compute_v1.Firewall] = {}
        self.policies = PlacementPolicies(self)
        self.reservations = Reservations(self._running)
        self._disks: dict[tuple[str, str], compute_v1.Disk] = {}
        self._addresses: dict[tuple[str, str], compute_v1.Address] = {}
        self._pages: dict[str, int] = {}
        self.locations: frozenset[str] | None = None
        """The regions that the organization allows; None: all."""
        self.external_addresses = self.default_account = True
        self.custom = set[str]()
        """Networks without subnetworks of their own."""
        self.networks = {"default": f"{HOST}/projects/{PROJECT}/global/networks/default"}
        self.images = {*images("gcp")}
        self.image_gib: dict[str, int] = {}
        """The sizes of images; that of others is 10."""
        self.denied: set[str] = set()
        self.listed_late_seconds = 0.0
        self.notice_seconds = 30.0
        self.page_size = 3
        self.account_may_delete = True
        self.unreachable: set[str] = set()
        self.http: LoopbackServer = self._open.enter_context(serving(self))
        self.buckets = GoogleBuckets(host, self.project.tokens.__contains__)
        self.admin = GcpAdmin(self.denied, lambda: self.buckets.store)
        self.buckets.admin = self.admin.answer
        self.project.admits_ssh = self._admits_ssh
        self.project.port = int(self.http.url.rpartition(":")[2])
        self.project.variables = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": self.buckets.inside}

    def environment(self) -> Mapping[str, str]:
        return {
            "SPOTCTL_GCP_PROJECT": PROJECT,
            "SPOTCTL_GCP_COMPUTE_ENDPOINT": self.http.url,
            "SPOTCTL_GCP_BILLING_ENDPOINT": self.http.url,
            "SPOTCTL_GCP_RESOURCE_MANAGER_ENDPOINT": self.http.url,
            "SPOTCTL_GCP_IAM_ENDPOINT": self.http.url,
            "SPOTCTL_GCP_SERVICE_USAGE_ENDPOINT": self.http.url,
            **self.buckets.environment(),
        }

    def machines(self) -> tuple[Rented, ...]:
        return self.project.rented()

    def evict(self, machine: str, warning_seconds: float | None) -> None:
        self.project.evict(machine, warning_seconds)

    def resources(self) -> tuple[Left, ...]:
        with self.project.lock:
            machines = [
                Left("machine", one.id, dict(one.message.labels))
                for one in self.project.held
                if not one.deleted
            ]
            disks = [Left("disk", name, dict(one.labels)) for (_, name), one in self._disks.items()]
            disks += [Left("disk", one.message.name) for one in self.project.held if one.keeps_disk]
            addresses = [
                Left("address", name, dict(one.labels))
                for (_, name), one in self._addresses.items()
            ]
            rules = [Left("firewall rule", name) for name in self._firewalls]
            policies = [Left("placement policy", name) for _, name in self.policies.held]
            return (*machines, *disks, *addresses, *rules, *policies)

    def leave_disk(self, zone: str, name: str, labels: Mapping[str, str]) -> None:
        """Plays a disk that was left over."""
        link = f"{HOST}/projects/{PROJECT}/zones/{zone}"
        self._disks[zone, name] = compute_v1.Disk(
            name=name, zone=link, labels=dict(labels), size_gb=50
        )

    def leave_address(self, region: str, name: str, labels: Mapping[str, str]) -> None:
        """Plays a reserved address that was left over."""
        link = f"{HOST}/projects/{PROJECT}/regions/{region}"
        self._addresses[region, name] = compute_v1.Address(
            name=name, region=link, labels=dict(labels), address="203.0.113.9"
        )

    def rules(self) -> list[Any]:
        """The firewall rules of the project, as the SDK's messages."""
        return list(self._firewalls.values())

    def close(self) -> None:
        self.project.close()
        self.buckets.close()
        self._open.close()

    # The API.

    def answer(self, request: Request) -> Reply:
        if request.method == "POST" and re.fullmatch(_TESTED, request.path):
            (asked,) = request.json().values()
            whose = request.path.partition(":")[0].rpartition("/")[2]
            granted = [one for one in asked if self.admin.allows(one, whose)]
            return Reply.of_json({"permissions": granted})
        if "authorization" not in request.headers and (reply := self.admin.answer(request)):
            return reply
        for pattern, handler in self._routes().items():
            if match := re.fullmatch(pattern, f"{request.method} {request.path}"):
                try:
                    caller = self._caller(request)
                    plain = Request(request.method, request.path, request.query, {}, request.body)
                    message = handler(plain, match.groupdict(), caller)
                except Refused as refused:
                    return refused.reply
                return Reply.of_json(MessageToDict(type(message).pb(message)))
        return self._prices.answer(request)

    def _routes(self) -> dict[str, Callable[[Request, dict[str, str], str], Any]]:
        item = r"/(?P<{}>[^/]+)"
        instance = item.format("instance")
        return {
            rf"POST {_PROJECT}{_ZONE}/instances": self._insert_instance,
            rf"GET {_PROJECT}{_ZONE}/instances{instance}": self._get_instance,
            rf"DELETE {_PROJECT}{_ZONE}/instances{instance}": self._delete_instance,
            rf"GET {_PROJECT}{_ZONE}/instances{instance}/serialPort": self._read_console,
            rf"POST {_PROJECT}{_ZONE}/instances{instance}/simulateMaintenanceEvent": self._simulate_eviction,
            rf"GET {_PROJECT}/global/images/family{item.format('family')}": self._get_image_of_family,
            rf"GET {_PROJECT}/global/images{item.format('image')}": self._get_image,
            rf"GET {_PROJECT}/aggregated/instances": self._list_instances,
            rf"GET {_PROJECT}/aggregated/disks": self._list_disks,
            rf"DELETE {_PROJECT}{_ZONE}/disks{item.format('disk')}": self._delete_disk,
            rf"GET {_PROJECT}/aggregated/addresses": self._list_addresses,
            rf"DELETE {_PROJECT}/regions/(?P<region>[^/]+)/addresses{item.format('address')}": self._delete_address,
            rf"GET {_PROJECT}/aggregated/resourcePolicies": self.policies.list,
            rf"POST {_PROJECT}{_REGION}/resourcePolicies": self.policies.insert,
            rf"DELETE {_PROJECT}{_REGION}/resourcePolicies{item.format('resource_policy')}": self.policies.delete,
            rf"POST {_PROJECT}{_REGION}/operations{item.format('operation')}/wait": self._wait_in_region,
            rf"GET {_PROJECT}/aggregated/operations": self._list_operations,
            rf"POST {_PROJECT}{_ZONE}/operations{item.format('operation')}/wait": self._wait_in_zone,
            rf"POST {_PROJECT}/global/operations{item.format('operation')}/wait": self._wait_globally,
            rf"GET {_PROJECT}{_ZONE}/machineTypes{item.format('machine_type')}": self._get_machine_type,
            rf"GET {_PROJECT}": self._get_project,
            rf"GET {_PROJECT}/regions": self._list_regions,
            rf"GET {_PROJECT}/regions/(?P<region>[^/]+)": self._get_region,
            rf"GET {_PROJECT}/global/networks{item.format('network')}": self._get_network,
            rf"GET {_PROJECT}/global/firewalls": self._list_firewalls,
            rf"POST {_PROJECT}/global/firewalls": self._insert_firewall,
            rf"PATCH {_PROJECT}/global/firewalls{item.format('firewall')}": self._patch_firewall,
            rf"DELETE {_PROJECT}/global/firewalls{item.format('firewall')}": self._delete_firewall,
            rf"GET {_PROJECT}/regions/(?P<region>[^/]+)/subnetworks{item.format('subnetwork')}": self._get_subnetwork,
        }

    def _caller(self, request: Request) -> str:
        """Who calls: a launcher, which shows no credentials to a plain address, or a machine with
        its token.
        """
        shown = request.headers.get("authorization", "")
        if not shown:
            return LAPTOP
        held = self.project.tokens.get(shown.removeprefix("Bearer "))
        if held is None:
            raise Refused(401, "Request had invalid authentication credentials.", "authError")
        return account_of(held.message)

    # The SDK's messages.
    def _check(self, call: Any, permission: str, caller: str = LAPTOP) -> None:  # noqa: ANN401
        if call.project != PROJECT:
            raise Refused(404, f"The resource 'projects/{call.project}' was not found", "notFound")
        if permission in self.denied and caller == LAPTOP:
            raise Refused(
                403, f"Required '{permission}' permission for 'projects/{PROJECT}'", "forbidden"
            )

    def _zone(self, zone: str) -> dict[str, compute_v1.MachineType]:
        found = {
            name: types for zones in self._prices.zones.values() for name, types in zones.items()
        }
        if zone not in found:
            raise Refused(
                400, f"Invalid value for field 'zone': '{zone}'. Unknown zone.", "invalid"
            )
        return {str(one.name): one for one in found[zone]}

    def _insert_instance(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.InsertInstanceRequest, request, path, body="instance_resource")
        self._check(call, "compute.instances.create", caller)
        instance, zone = call.instance_resource, call.zone
        if ACT_AS in self.denied and caller == LAPTOP:
            account = instance.service_accounts[0].email
            text = (
                f"The user does not have access to service account '{account}'. Ask a project "
                f"owner to grant {ACT_AS}."
            )
            raise Refused(403, text, "forbidden")
        types = self._zone(zone)
        check_instance(instance, zone)
        with self.project.lock:
            if (known := self.project.repeated(call)) is not None:
                return known.message
            self._check_references(instance, types)
            self._check_policies(instance, zone)
            self.policies.check(instance, zone)
            self.reservations.check(instance, zone)
            if any(
                one.message.name == instance.name and one.zone == zone and not one.deleted
                for one in self.project.held
            ):
                raise Refused(
                    409,
                    f"The resource '{zone}/instances/{instance.name}' already exists",
                    "alreadyExists",
                )
            kind = types[instance.machine_type.rpartition("/")[2]]
            if not self.reservations.takes(instance, zone):
                self._check_quotas(zone, instance, kind)
            refusal = self.reservations.refusal(instance, zone)
            return self.project.creation(call, kind, caller, refusal).message

    def _check_policies(self, instance: compute_v1.Instance, zone: str) -> None:
        """The organization's rules, in Google's words:
        https://github.com/gardener/gardener-extension-provider-gcp/issues/415 and
        https://github.com/GoogleCloudPlatform/oss-test-infra/pull/2703"""
        if self.locations is not None and zone.rpartition("-")[0] not in self.locations:
            text = (
                f"Location ZONE:{zone} violates constraint constraints/gcp.resourceLocations on "
                "the resource"
            )
            raise Refused(
                412,
                f"{text} projects/{PROJECT}/zones/{zone}/instances/{instance.name}.",
                "conditionNotMet",
            )
        outside = any(one.access_configs for one in instance.network_interfaces)
        if outside and not self.external_addresses:
            text = (
                "Constraint constraints/compute.vmExternalIpAccess violated for project "
                f"{PROJECT}. Add instance"
            )
            raise Refused(
                412,
                f"{text} {instance.name} to the constraint to use external IP with it.",
                "conditionNotMet",
            )
        if not self.default_account and instance.service_accounts[0].email == "default":
            account = f"projects/{PROJECT}/serviceAccounts/1-compute@developer.gserviceaccount.com"
            raise Refused(
                400, f"The resource '{account}' of type 'serviceAccount' was not found.", "invalid"
            )

    def _check_quotas(
        self, zone: str, instance: compute_v1.Instance, kind: compute_v1.MachineType
    ) -> None:
        """Refuses a machine for which a quota of its series, of spot machines or of the project is
        too small.
        """
        region, spot = (
            zone.rpartition("-")[0],
            str(instance.scheduling.provisioning_model) == "SPOT",
        )
        metric = self._metric_of(str(kind.name), spot=spot)
        running = [one for one in self.project.held if one.ended is None]
        held = [one for one in running if not self.reservations.takes(one.message, one.zone)]
        of_metric = [
            one.vcpus
            for one in held
            if one.zone.rpartition("-")[0] == region
            and self._metric_of(one.message.machine_type.rpartition("/")[2], spot=one.is_spot)
            == metric
        ]
        limits = [(metric, self.quotas.get(metric), sum(of_metric), region)]
        if not spot:
            everywhere = sum(one.vcpus for one in held if not one.is_spot)
            limits.append(
                (
                    "CPUS_ALL_REGIONS",
                    self.project_quotas.get("CPUS_ALL_REGIONS"),
                    everywhere,
                    "all regions",
                )
            )
        if any(one.access_configs for one in instance.network_interfaces):
            # One address for each machine; the loop adds the machine's vCPUs.
            there = sum(one.zone.rpartition("-")[0] == region for one in running)
            addresses = self.quotas.get("IN_USE_ADDRESSES")
            limits.append(
                ("IN_USE_ADDRESSES", addresses, there + 1 - kind.guest_cpus, f"region {region}")
            )
        for name, most, used, where in limits:
            if most is not None and used + kind.guest_cpus > most:
                raise Refused(
                    403, f"Quota '{name}' exceeded. Limit: {most} in {where}.", "quotaExceeded"
                )

    def _running(self) -> list[tuple[compute_v1.Instance, str]]:
        """The machines that run, and their zones."""
        return [(one.message, one.zone) for one in self.project.held if one.ended is None]

    def _metric_of(self, type_: str, *, spot: bool) -> str:
        """The quota of vCPUs that a machine counts against; spot machines share it where they have
        none.
        """
        own = f"{type_.partition('-')[0].upper()}_CPUS"
        if spot and self.quotas.get("PREEMPTIBLE_CPUS"):
            return "PREEMPTIBLE_CPUS"
        return own if own in self.quotas else "CPUS"

    def _check_references(
        self, instance: compute_v1.Instance, types: Mapping[str, compute_v1.MachineType]
    ) -> None:
        kind = instance.machine_type.rpartition("/")[2]
        if kind not in types:
            raise _missing("resource.machineType", instance.machine_type)
        image = instance.disks[0].initialize_params.source_image
        if image[image.find("projects/") :] not in self.images:
            raise _missing("resource.disks[0].initializeParams.sourceImage", image)
        disk, least = instance.disks[0].initialize_params, self.image_gib.get(image, 10)
        if 0 < disk.disk_size_gb < least:
            text = f"Requested disk size cannot be smaller than the image size ({least} GB)"
            field = "resource.disks[0].initializeParams.diskSizeGb"
            raise Refused(
                400, f"Invalid value for field '{field}': '{disk.disk_size_gb}'. {text}", "invalid"
            )
        for one in instance.network_interfaces:
            if one.network and one.network.rpartition("/")[2] not in self.networks:
                raise _missing("resource.networkInterfaces[0].network", one.network)

    def _get_instance(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Instance:
        call = checked(compute_v1.GetInstanceRequest, request, path)
        self._check(call, "compute.instances.get", caller)
        return self.project.named(call.zone, call.instance).message

    def _delete_instance(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.DeleteInstanceRequest, request, path)
        self._check(call, "compute.instances.delete", caller)
        if caller != LAPTOP and not self.account_may_delete:
            raise Refused(
                403,
                f"Required 'compute.instances.delete' permission for {call.instance}",
                "forbidden",
            )
        with self.project.lock:
            if (known := self.project.repeated(call)) is not None:
                return known.message
            held = self.project.named(call.zone, call.instance)
            return self.project.deletion(call, held, caller).message

    def _read_console(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.SerialPortOutput:
        call = checked(compute_v1.GetSerialPortOutputInstanceRequest, request, path)
        self._check(call, "compute.instances.getSerialPortOutput", caller)
        held = self.project.named(call.zone, call.instance)
        return compute_v1.SerialPortOutput(
            contents=self.project.host.console(held.host_name), start=0
        )

    def _simulate_eviction(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.SimulateMaintenanceEventInstanceRequest, request, path)
        self._check(call, "compute.instances.simulateMaintenanceEvent", caller)
        held = self.project.named(call.zone, call.instance)
        if not held.is_spot:
            raise Refused(
                400,
                "Maintenance events of machines that are not spot are not simulated here.",
                "invalid",
            )
        self.project.evict(held.id, self.notice_seconds)
        return self.project.operation(
            "simulateMaintenanceEvent", held.link, held.zone, caller
        ).message

    def _get_image_of_family(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Image:
        if "compute.images.getFromFamily" in self.denied and caller == LAPTOP:
            raise Refused(403, "Required 'compute.images.getFromFamily' permission", "forbidden")
        call = checked(compute_v1.GetFromFamilyImageRequest, request, path)
        family = f"projects/{call.project}/global/images/family/{call.family}"
        if family not in self.images:
            raise Refused(404, f"The resource '{family}' was not found", "notFound")
        gib = self.image_gib.get(family, 10)
        return compute_v1.Image(
            name=f"{call.family}-v20260101", family=call.family, status="READY", disk_size_gb=gib
        )

    def _get_image(self, request: Request, path: dict[str, str], caller: str) -> compute_v1.Image:
        call = checked(compute_v1.GetImageRequest, request, path)
        self._check(call, "compute.images.get", caller)
        image = f"projects/{call.project}/global/images/{call.image}"
        if image not in self.images:
            raise Refused(404, f"The resource '{image}' was not found", "notFound")
        gib = self.image_gib.get(image, 10)
        return compute_v1.Image(name=call.image, status="READY", disk_size_gb=gib)

    def _list_instances(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.InstanceAggregatedList:
        call = checked(compute_v1.AggregatedListInstancesRequest, request, path)
        self._check(call, "compute.instances.list", caller)
        young = now_micros() - int(self.listed_late_seconds * 1e6)
        with self.project.lock:
            living = [one for one in self.project.held if not one.deleted and one.started <= young]
            rows = [(one.zone, one.message) for one in living if one.zone not in self.unreachable]
        scopes, token = self._page(request, call, rows)
        lists = {
            f"zones/{zone}": compute_v1.InstancesScopedList(instances=own)
            for zone, own in scopes.items()
        }
        for zone in self.unreachable:
            lists[f"zones/{zone}"] = compute_v1.InstancesScopedList(warning=UNREACHABLE)
        return compute_v1.InstanceAggregatedList(items=lists, next_page_token=token)

    def _list_disks(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.DiskAggregatedList:
        call = checked(compute_v1.AggregatedListDisksRequest, request, path)
        self._check(call, "compute.disks.list", caller)
        with self.project.lock:
            rows = [(zone, one) for (zone, _), one in self._disks.items()]
            rows += [
                (one.zone, _disk_of(one.message)) for one in self.project.held if not one.deleted
            ]
        scopes, token = self._page(request, call, rows)
        lists = {
            f"zones/{zone}": compute_v1.DisksScopedList(disks=own) for zone, own in scopes.items()
        }
        return compute_v1.DiskAggregatedList(items=lists, next_page_token=token)

    def _list_addresses(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.AddressAggregatedList:
        call = checked(compute_v1.AggregatedListAddressesRequest, request, path)
        self._check(call, "compute.addresses.list", caller)
        rows = [(region, one) for (region, _), one in self._addresses.items()]
        scopes, token = self._page(request, call, rows)
        lists = {
            f"regions/{one}": compute_v1.AddressesScopedList(addresses=own)
            for one, own in scopes.items()
        }
        return compute_v1.AddressAggregatedList(items=lists, next_page_token=token)

    def _list_operations(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.OperationAggregatedList:
        call = checked(compute_v1.AggregatedListGlobalOperationsRequest, request, path)
        self._check(call, "compute.globalOperations.list", caller)
        with self.project.lock:
            every = self.project.operations.values()
            rows = [
                (one.zone or "", one.message) for one in every if one.zone not in self.unreachable
            ]
        scopes, token = self._page(request, call, rows)
        lists = {
            _scope_of(zone): compute_v1.OperationsScopedList(operations=own)
            for zone, own in scopes.items()
        }
        for zone in self.unreachable:
            lists[f"zones/{zone}"] = compute_v1.OperationsScopedList(warning=UNREACHABLE)
        return compute_v1.OperationAggregatedList(items=lists, next_page_token=token)

    def _wait_in_zone(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.WaitZoneOperationRequest, request, path)
        self._check(call, "compute.zoneOperations.get", caller)
        return self._waited(call.operation, call.zone)

    def _wait_in_region(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.WaitRegionOperationRequest, request, path)
        self._check(call, "compute.regionOperations.get", caller)
        return self._waited(call.operation, call.region)

    def _wait_globally(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.WaitGlobalOperationRequest, request, path)
        self._check(call, "compute.globalOperations.get", caller)
        return self._waited(call.operation, None)

    def _waited(self, name: str, zone: str | None) -> compute_v1.Operation:
        running = self.project.operations.get(name)
        if running is None or running.zone != zone:
            raise Refused(404, f"The resource '{name}' was not found", "notFound")
        running.ended.wait(_WAIT_SECONDS)
        return running.message

    def _get_machine_type(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.MachineType:
        call = checked(compute_v1.GetMachineTypeRequest, request, path)
        self._check(call, "compute.machineTypes.get", caller)
        types = self._zone(call.zone)
        if call.machine_type not in types:
            raise Refused(
                404,
                f"The resource '{call.zone}/machineTypes/{call.machine_type}' was not found",
                "notFound",
            )
        return types[call.machine_type]

    def _get_region(self, request: Request, path: dict[str, str], caller: str) -> compute_v1.Region:
        call = checked(compute_v1.GetRegionRequest, request, path)
        self._check(call, "compute.regions.get", caller)
        if call.region not in self._prices.zones:
            raise Refused(
                404,
                f"The resource 'projects/{PROJECT}/regions/{call.region}' was not found",
                "notFound",
            )
        return self._region(call.region)

    def _get_project(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Project:
        self._check(
            checked(compute_v1.GetProjectRequest, request, path), "compute.projects.get", caller
        )
        quotas = [
            compute_v1.Quota(metric=name, limit=limit)
            for name, limit in self.project_quotas.items()
        ]
        return compute_v1.Project(name=PROJECT, quotas=quotas)

    def _list_regions(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.RegionList:
        self._check(
            checked(compute_v1.ListRegionsRequest, request, path), "compute.regions.list", caller
        )
        return compute_v1.RegionList(items=[self._region(name) for name in self._prices.zones])

    def _region(self, name: str) -> compute_v1.Region:
        zones = [f"{HOST}/projects/{PROJECT}/zones/{zone}" for zone in self._prices.zones[name]]
        quotas = [compute_v1.Quota(metric=name, limit=limit) for name, limit in self.quotas.items()]
        return compute_v1.Region(name=name, status="UP", zones=zones, quotas=quotas)

    def _get_subnetwork(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Subnetwork:
        call = checked(compute_v1.GetSubnetworkRequest, request, path)
        self._check(call, "compute.subnetworks.get", caller)
        if call.subnetwork not in self.networks:
            raise Refused(
                404, f"The resource 'subnetworks/{call.subnetwork}' was not found", "notFound"
            )
        return compute_v1.Subnetwork(name=call.subnetwork, network=self.networks[call.subnetwork])

    def _get_network(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Network:
        call = checked(compute_v1.GetNetworkRequest, request, path)
        self._check(call, "compute.networks.get", caller)
        if call.network not in self.networks:
            raise Refused(404, f"The resource 'networks/{call.network}' was not found", "notFound")
        return compute_v1.Network(
            name=call.network, auto_create_subnetworks=call.network not in self.custom
        )

    def _list_firewalls(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.FirewallList:
        call = checked(compute_v1.ListFirewallsRequest, request, path)
        self._check(call, "compute.firewalls.list", caller)
        with self.project.lock:
            scopes, token = self._page(
                request, call, [("", one) for one in self._firewalls.values()]
            )
        return compute_v1.FirewallList(items=scopes.get("", []), next_page_token=token)

    def _insert_firewall(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.InsertFirewallRequest, request, path, body="firewall_resource")
        self._check(call, "compute.firewalls.create", caller)
        rule = call.firewall_resource
        check_name(rule.name)
        if rule.network.rpartition("/")[2] not in self.networks:
            raise _missing("resource.network", rule.network)
        if (
            not (rule.source_ranges or rule.source_tags or rule.source_service_accounts)
            or not rule.allowed
        ):
            raise Refused(
                400, "Invalid value for field 'resource': a rule that admits everything", "invalid"
            )
        with self.project.lock:
            if (known := self.project.repeated(call)) is not None:
                return known.message
            if rule.name in self._firewalls:
                raise Refused(
                    409, f"The resource 'firewalls/{rule.name}' already exists", "alreadyExists"
                )
            self._firewalls[rule.name] = rule
            return self._done("insert", f"global/firewalls/{rule.name}", None, caller, call)

    def _patch_firewall(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.PatchFirewallRequest, request, path, body="firewall_resource")
        self._check(call, "compute.firewalls.update", caller)
        with self.project.lock:
            if (known := self.project.repeated(call)) is not None:
                return known.message
            if (rule := self._firewalls.get(call.firewall)) is None:
                raise Refused(
                    404, f"The resource 'firewalls/{call.firewall}' was not found", "notFound"
                )
            for field, value in call.firewall_resource._pb.ListFields():
                rule._pb.ClearField(field.name)
                rule._pb.MergeFrom(type(rule._pb)(**{field.name: value}))
            return self._done("patch", f"global/firewalls/{call.firewall}", None, caller, call)

    def _delete_firewall(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.DeleteFirewallRequest, request, path)
        self._check(call, "compute.firewalls.delete", caller)
        with self.project.lock:
            self._removed(self._firewalls, call.firewall)
            return self._done("delete", f"global/firewalls/{call.firewall}", None, caller, call)

    def _delete_disk(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.DeleteDiskRequest, request, path)
        self._check(call, "compute.disks.delete", caller)
        with self.project.lock:
            self._removed(self._disks, (call.zone, call.disk))
            return self._done(
                "delete", f"zones/{call.zone}/disks/{call.disk}", call.zone, caller, call
            )

    def _delete_address(
        self, request: Request, path: dict[str, str], caller: str
    ) -> compute_v1.Operation:
        call = checked(compute_v1.DeleteAddressRequest, request, path)
        self._check(call, "compute.addresses.delete", caller)
        with self.project.lock:
            self._removed(self._addresses, (call.region, call.address))
            return self._done(
                "delete", f"regions/{call.region}/addresses/{call.address}", None, caller, call
            )

    def _admits_ssh(self, instance: compute_v1.Instance) -> bool:
        """Whether the firewall lets us in. The default network has a rule that admits ssh from
        everywhere.
        """
        (interface,) = instance.network_interfaces
        name = (interface.subnetwork or interface.network).rpartition("/")[2]
        if name == "default":
            return True
        network = self.networks[name].rpartition("/")[2]
        with self.project.lock:
            rules = [
                one for one in self._firewalls.values() if one.network.rpartition("/")[2] == network
            ]
        return any(admits(one, list(instance.tags.items)) for one in rules)

    def _removed(self, held: dict[Any, Any], key: object) -> None:
        if held.pop(key, None) is None:
            raise Refused(404, f"The resource '{key}' was not found", "notFound")

    def _done(
        self,
        kind: str,
        path: str,
        zone: str | None,
        caller: str,
        call: Any,  # noqa: ANN401
    ) -> compute_v1.Operation:  # the SDK's messages
        link = f"{HOST}/projects/{PROJECT}/{path}"
        operation = self.project.operation(kind, link, zone, caller, call.request_id)
        self.project.remember(call, operation)
        self.project.finish(operation)
        return operation.message

    def _page(
        self,
        request: Request,
        call: Any,  # noqa: ANN401  # the SDK's messages
        rows: Iterable[tuple[str, Any]],
    ) -> tuple[dict[str, list[Any]], str]:
        """The rows of a page by their scope, and the token of the next page."""
        if not 0 < call.max_results <= 500:
            raise Refused(
                400, f"Invalid value for field 'maxResults': '{call.max_results}'", "invalid"
            )
        chosen = filter_of(call.filter)
        found = [(scope, one) for scope, one in rows if chosen(one)]
        start = self._pages.get(call.page_token, -1) if call.page_token else 0
        if start < 0:
            raise Refused(
                400, f"Invalid value for field 'pageToken': '{call.page_token}'", "invalid"
            )
        end = start + min(call.max_results, self.page_size)
        scopes: dict[str, list[Any]] = {}
        for scope, one in found[start:end]:
            scopes.setdefault(scope, []).append(one)
        token = f"{request.path}#{end}" if end < len(found) else ""
        if token:
            self._pages[token] = end
        return scopes, token


def admits(rule: compute_v1.Firewall, tags: Sequence[str]) -> bool:
    """Whether a rule admits ssh from this computer to a machine with these network tags."""
    if rule.target_tags and not set(rule.target_tags) & set(tags):
        return False
    ssh = any(
        one.I_p_protocol in ("all", "tcp") and (not one.ports or "22" in one.ports)
        for one in rule.allowed
    )
    ranges = [ip_network(one) for one in rule.source_ranges]
    return ssh and any(ip_address(address) in one for one in ranges for address in LAPTOP_ADDRESSES)


def _scope_of(place: str) -> str:
    """The scope of a list for a zone, a region or neither."""
    if not place:
        return "global"
    return f"zones/{place}" if place.count("-") > 1 else f"regions/{place}"


def _disk_of(instance: compute_v1.Instance) -> compute_v1.Disk:
    """The boot disk of a machine, which is used by it."""
    labels = dict(instance.disks[0].initialize_params.labels)
    return compute_v1.Disk(
        name=instance.name, zone=instance.zone, labels=labels, users=[instance.self_link]
    )


def _missing(field: str, value: str) -> Refused:
    message = (
        f"Invalid value for field '{field}': '{value}'. The referenced resource cannot be found."
    )
    return Refused(400, message, "invalid")
