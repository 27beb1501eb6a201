"""Azure on 127.0.0.1: Resource Manager for groups, deployments, virtual machines and networks, with
machines behind it.

The SDK's models decide what a request may contain (`tests.cloud.azure_models`). The price server
(`tests.servers.azure`) answers for prices and sizes. A request without a token comes from the
launcher, since no token is sent over plain HTTP; one with a token comes from a machine, which got
it from its metadata service.
"""

from __future__ import annotations

import re
import secrets
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from email.utils import formatdate
from urllib.parse import urlencode

from tests.cloud.api import Left, Rented, now_micros
from tests.cloud.azure_access import SKIP, Access, parameters, spelled
from tests.cloud.azure_admin import AzureAdmin
from tests.cloud.azure_fleet import (
    GRACE_SECONDS,
    IDENTITY,
    IMAGES,
    LAUNCHER,
    Fleet,
    actions_of,
    invalid_deployment,
)
from tests.cloud.azure_models import BadBody, check_body
from tests.cloud.azure_reservations import READ, RESERVATIONS, ROUTE
from tests.cloud.azure_state import (
    GROUPS,
    INTERFACES,
    RULES,
    VMS,
    Body,
    Deployment,
    Group,
    Item,
    Refused,
    Vm,
)
from tests.cloud.azure_templates import resources_of, wanted
from tests.cloud.buckets import AzureBuckets
from tests.cloud.host import MachineHost
from tests.servers.azure import SUBSCRIPTION
from tests.servers.loopback import Reply, Request, serving

_PREFIX = f"/subscriptions/{SUBSCRIPTION}"
_GROUP = rf"{_PREFIX}/resourcegroups/(?P<group>[^/]+)"
_IMAGE_VERSIONS = (
    rf"{_PREFIX}/providers/microsoft\.compute/locations/\w+/publishers/(?P<publisher>[^/]+)/artifacttypes/vmimage"
    r"/offers/(?P<offer>[^/]+)/skus/(?P<sku>[^/]+)/versions"
)
_IMAGES = (
    rf"(?P<image>{_GROUP}/providers/microsoft\.compute/"
    r"(images/[^/]+|galleries/[^/]+/images/[^/]+/versions/[^/]+))"
)
_PROVIDER = rf"{_GROUP}/providers/(?P<kind>[^/]+/[^/]+)"
_RULES = rf"{_GROUP}/providers/{re.escape(RULES)}/(?P<name>[^/]+)"
_DEPLOYMENTS = rf"{_GROUP}/providers/microsoft\.resources/deployments"

Handler = Callable[..., Reply]


class AzureServer:
    """Resource Manager of one subscription. The attributes are what a test may set.

    `polls` is the number of times a deployment must be polled before it has ended, and `page_limit`
    the longest page of a list. `refusals` are errors for the next deployments. `failing_deletions`
    is how many deletions of machines will be accepted and fail. `access` and `fleet` have further
    settings.
    """

    name = "azure"

    def __init__(self, host: MachineHost) -> None:
        self.host, self.fleet = host, Fleet(host)
        self.market = self.fleet.price_lists()
        self.polls = 1
        self.notice_seconds = 30.0
        self.page_limit = 1000
        self.refusals: list[Body] = []
        self.unregistered: set[str] = set()
        self.roles = {"spotctl-machine"}
        self.images: dict[str, Body] = {}
        """The storage profiles of the company's images, by their ids."""
        self.deletion_seconds = 0.0
        self.failing_deletions = 0
        self.access = Access(self.fleet.tokens)
        self._groups: dict[str, Group] = {}
        self._signatures: dict[str, Vm] = {}
        self._stack = ExitStack()
        self.server = self._stack.enter_context(serving(self))
        self.buckets = AzureBuckets(host, self.fleet.storage_tokens.__contains__)
        self.admin = AzureAdmin(
            self.access, self.fleet, self._group, self.unregistered, lambda: self.buckets.store
        )
        self.fleet.url = self.server.url
        self.fleet.variables = {"AZURE_STORAGE_BLOB_ENDPOINT": self.buckets.inside}

    # -- what a test and `python -m tests.cloud` ask -----------------------------------------------

    @property
    def url(self) -> str:
        return self.server.url

    def environment(self) -> Mapping[str, str]:
        return {
            "SPOTCTL_AZURE_MANAGEMENT_ENDPOINT": self.url,
            "SPOTCTL_AZURE_RETAIL_PRICES_URL": f"{self.url}/api/retail/prices",
            "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
            "SPOTCTL_AZURE": f'identity = "{IDENTITY}"\nssh_from = ["127.0.0.0/8"]',
            **self.buckets.environment(),
        }

    def machines(self) -> tuple[Rented, ...]:
        with self.fleet.lock:
            return tuple(
                rented for vm in self.fleet.machines if (rented := vm.rented()) is not None
            )

    def resources(self) -> tuple[Left, ...]:
        with self.fleet.lock:
            groups = [Left(GROUPS, group.name, dict(group.tags)) for group in self._groups.values()]
            items = [item for group in self._groups.values() for item in group.items.values()]
            return (
                *groups,
                *(
                    Left(item.kind, f"{item.group.name}/{item.name}", dict(item.tags))
                    for item in items
                ),
            )

    def evict(self, machine: str, warning_seconds: float | None) -> None:
        self.fleet.announce_eviction(machine, warning_seconds)

    def close(self) -> None:
        self._stack.close()
        self.buckets.close()
        self.fleet.close()

    def add_group(self, name: str, location: str, tags: Mapping[str, str]) -> None:
        """Makes a group that is not spotctl's."""
        self._groups[name.lower()] = Group(SUBSCRIPTION, name, location, tags)

    def vm(self, machine: str) -> Vm:
        """A machine that has not ended, by its name or by an id that ends with it."""
        return self.fleet.running(machine)

    # -- requests ----------------------------------------------------------------------------------

    def answer(self, request: Request) -> Reply:
        try:
            if (signature := request.query.get("sig", [""])[0]) in self._signatures:
                return Reply(200, self.host.console(self._signatures[signature].host_name).encode())
            for method, pattern, handler in self._routes():
                matched = re.fullmatch(pattern, request.path.rstrip("/"), re.IGNORECASE)
                if method == request.method and matched:
                    with self.fleet.lock:
                        return handler(request, **matched.groupdict())
        except BadBody as bad:
            return Reply.of_json({"error": {"code": bad.code, "message": str(bad)}}, 400)
        except Refused as refused:
            return Reply.of_json({"error": refused.error}, refused.status)
        return self.market.answer(request)

    def _routes(self) -> Iterator[tuple[str, str, Handler]]:
        yield "GET", rf"{_PREFIX}/resourcegroups", self._list_groups
        yield "GET", _GROUP, self._get_group
        yield "PUT", _GROUP, self._put_group
        yield "DELETE", _GROUP, self._delete_group
        yield "GET", rf"{_GROUP}/resources", self._list_resources
        yield "GET", _DEPLOYMENTS, self._list_deployments
        yield "GET", rf"{_DEPLOYMENTS}/(?P<name>[^/]+)", self._get_deployment
        yield "PUT", rf"{_DEPLOYMENTS}/(?P<name>[^/]+)", self._put_deployment
        yield "POST", rf"{_DEPLOYMENTS}/(?P<name>[^/]+)/validate", self._validate_deployment
        yield "GET", rf"{_GROUP}/deployments/(?P<name>[^/]+)/operations", self._list_operations
        yield (
            "GET",
            rf"{_PREFIX}/providers/microsoft\.insights/eventtypes/management/values",
            self._activity,
        )
        yield "GET", re.escape(IDENTITY), self._get_identity
        yield from self.admin.routes()
        yield "GET", rf"{_PREFIX}/providers/microsoft\.authorization/permissions", self._permissions
        yield (
            "GET",
            rf"{_PREFIX}/providers/microsoft\.authorization/roledefinitions",
            self._list_roles,
        )
        yield (
            "PUT",
            rf"{_GROUP}/providers/microsoft\.authorization/roleassignments/(?P<name>[^/]+)",
            self._assign_role,
        )
        yield "GET", rf"{_PREFIX}/providers/microsoft\.compute/locations/\w+/usages", self._usages
        yield "GET", _IMAGE_VERSIONS, self._list_images
        yield "GET", rf"{_PREFIX}/providers/(?P<namespace>[\w.]+)", self._get_provider
        yield "GET", ROUTE, self._list_reservations
        yield "GET", rf"{ROUTE}/(?P<name>[^/]+)", self._get_reservation
        yield "GET", _IMAGES, self._get_image
        yield "GET", _PROVIDER, self._list_items
        yield "GET", rf"{_PROVIDER}/(?P<name>[^/]+)", self._get_item
        yield "PUT", _RULES, self._put_rules
        yield "DELETE", rf"{_PROVIDER}/(?P<name>[^/]+)", self._delete_item
        yield "POST", rf"{_PROVIDER}/(?P<name>[^/]+)/retrieveBootDiagnosticsData", self._console
        yield "POST", rf"{_PROVIDER}/(?P<name>[^/]+)/simulateEviction", self._simulate_eviction

    def _paged(self, request: Request, values: list[Body]) -> Reply:
        """A page of a list, with the link to the next one."""
        start = int(request.query.get(SKIP, ["0"])[0])
        end = start + self.page_limit
        query = {name: one[0] for name, one in request.query.items()} | {SKIP: str(end)}
        link = (
            {"nextLink": f"{_address(request)}{request.path}?{urlencode(query)}"}
            if end < len(values)
            else {}
        )
        return Reply.of_json({"value": values[start:end], **link})

    # -- groups ------------------------------------------------------------------------------------

    def _list_groups(self, request: Request) -> Reply:
        parameters(request, GROUPS, "$filter")
        self.access.check(request, "Microsoft.Resources/subscriptions/resourceGroups/read", _PREFIX)
        matched = re.fullmatch(
            r"tagName eq '([^']+)' and tagValue eq '([^']+)'", request.query.get("$filter", [""])[0]
        )
        if "$filter" in request.query and not matched:
            raise Refused("InvalidFilterInQueryString", request.query["$filter"][0])
        fitting = [
            group
            for group in self._groups.values()
            if not matched or group.tags.get(matched[1]) == matched[2]
        ]
        return self._paged(request, [group.shown() for group in fitting])

    def _get_group(self, request: Request, group: str) -> Reply:
        parameters(request, GROUPS)
        self.access.check(request, "Microsoft.Resources/subscriptions/resourceGroups/read", group)
        return Reply.of_json(self._group(group).shown())

    def _put_group(self, request: Request, group: str) -> Reply:
        parameters(request, GROUPS)
        self.access.check(request, "Microsoft.Resources/subscriptions/resourceGroups/write", group)
        body = request.json()
        check_body(GROUPS, body)
        if not re.fullmatch(r"[\w.()-]{0,89}[\w()-]", group):
            raise Refused("InvalidResourceGroup", f"{group} is no name of a group")
        known = self._groups.get(group.lower())
        if known and known.location != body["location"]:
            raise Refused(
                "InvalidResourceGroupLocation",
                f"Resource group '{group}' is in {known.location}.",
                409,
            )
        if known and known.state == "Deleting":
            raise Refused(
                "ResourceGroupBeingDeleted",
                f"The resource group '{group}' is in deprovisioning state.",
                409,
            )
        if known:
            known.tags = body.get("tags", {})
        else:
            self._groups[group.lower()] = Group(
                SUBSCRIPTION, group, body["location"], body.get("tags", {})
            )
        return Reply.of_json(self._groups[group.lower()].shown(), 200 if known else 201)

    def _delete_group(self, request: Request, group: str) -> Reply:
        parameters(request, GROUPS)
        self.access.check(request, "Microsoft.Resources/subscriptions/resourceGroups/delete", group)
        doomed = self._group(group)
        doomed.state = "Deleting"
        machines = [item for item in doomed.of_kind(VMS) if isinstance(item, Vm)]
        for vm in machines:
            self.fleet.note(vm, "delete", "Started", LAUNCHER)
            self.fleet.end_bill(vm, "deleted")

        def finish() -> None:
            for vm in machines:
                self.fleet.stop(vm, GRACE_SECONDS)
            threading.Event().wait(self.deletion_seconds)
            with self.fleet.lock:
                self._groups.pop(group.lower(), None)

        threading.Thread(target=finish, daemon=True).start()
        return Reply(
            202, b"", {"Location": f"{_address(request)}{_PREFIX}/operationresults/{uuid.uuid4()}"}
        )

    def _list_resources(self, request: Request, group: str) -> Reply:
        parameters(request, GROUPS)
        self.access.check(request, "Microsoft.Resources/subscriptions/resourceGroups/read", group)
        items = [*self._group(group).items.values()]
        gone, self.admin.gone = self.admin.gone[:1], self.admin.gone[1:]
        items += [item for name, item in gone if name == group.lower()]
        shown = [
            {"id": item.id, "name": item.name, "type": item.kind, "location": item.body["location"]}
            | ({"tags": dict(item.tags)} if item.tags else {})
            for item in items
        ]
        return self._paged(request, shown)

    def _group(self, name: str) -> Group:
        group = self._groups.get(name.lower())
        if group is None:
            raise Refused(
                "ResourceGroupNotFound", f"Resource group '{name}' could not be found.", 404
            )
        return group

    # -- deployments -------------------------------------------------------------------------------

    def _list_deployments(self, request: Request, group: str) -> Reply:
        parameters(request, "Microsoft.Resources/deployments")
        self.access.check(request, "Microsoft.Resources/deployments/read", group)
        return self._paged(
            request, [one.shown() for one in self._group(group).deployments.values()]
        )

    def _get_deployment(self, request: Request, group: str, name: str) -> Reply:
        parameters(request, "Microsoft.Resources/deployments")
        self.access.check(request, "Microsoft.Resources/deployments/read", group)
        deployment = self._deployment(group, name)
        reply = Reply.of_json(deployment.shown())
        deployment.polls -= 1
        return reply

    def _list_operations(self, request: Request, group: str, name: str) -> Reply:
        parameters(request, "Microsoft.Resources/deployments")
        self.access.check(request, "Microsoft.Resources/deployments/operations/read", group)
        return self._paged(request, self._deployment(group, name).operations())

    def _deployment(self, group: str, name: str) -> Deployment:
        deployment = self._group(group).deployments.get(name.lower())
        if deployment is None:
            raise Refused("DeploymentNotFound", f"Deployment '{name}' could not be found.", 404)
        return deployment

    def _put_deployment(self, request: Request, group: str, name: str) -> Reply:
        parameters(request, "Microsoft.Resources/deployments")
        self.access.check(request, "Microsoft.Resources/deployments/write", group)
        body = request.json()
        check_body("Microsoft.Resources/deployments", body)
        holder = self._group(group)
        if holder.state == "Deleting":
            raise Refused(
                "ResourceGroupBeingDeleted",
                f"The resource group '{group}' is in deprovisioning state.",
                409,
            )
        known = holder.deployments.get(name.lower())
        if known and known.state == "Running":
            raise Refused(
                "DeploymentActive",
                f"Unable to edit or replace deployment '{name}': it is active.",
                409,
            )
        resources = resources_of(body)
        self._preflight(request, resources)
        deployment = Deployment(holder, name, body.get("tags", {}), polls=self.polls)
        holder.deployments[name.lower()] = deployment
        for one in resources:
            deployment.steps.append(self._carry_out(holder, one))
        operation = f"{_address(request)}{deployment.id}/operationStatuses/{uuid.uuid4()}"
        return Reply.of_json(
            deployment.shown(), 200 if known else 201, **{"Azure-AsyncOperation": operation}
        )

    def _validate_deployment(self, request: Request, group: str, name: str) -> Reply:
        parameters(request, "Microsoft.Resources/deployments")
        self.access.check(request, "Microsoft.Resources/deployments/validate/action", group)
        body = request.json()
        check_body("Microsoft.Resources/deployments", body)
        holder = self._group(group)
        self._preflight(request, resources_of(body))
        deployment = Deployment(holder, name, body.get("tags", {}), polls=0)
        return Reply.of_json(deployment.shown())

    def _preflight(self, request: Request, resources: list[Body]) -> None:
        """What Resource Manager refuses before it begins."""
        for one in resources:
            for action, linked in actions_of(one):
                self.access.check(request, action, one["name"], linked)
        for namespace in {one["type"].partition("/")[0] for one in resources}:
            if namespace.lower() in self.unregistered:
                message = (
                    f"The subscription is not registered to use namespace '{namespace}'. See"
                    " https://aka.ms/rps-not-found for how to register subscriptions."
                )
                raise Refused("MissingSubscriptionRegistration", message, 409)
        vms = [one for one in resources if one["type"] == VMS]
        with suppress(IndexError):
            raise invalid_deployment(self.refusals.pop(0))
        self.fleet.check(vms)

    def _carry_out(self, group: Group, resource: Body) -> tuple[str, Body | None]:
        """Makes one resource of a deployment; its id, and the error if it could not be made."""
        body, kind, name = wanted(resource), resource["type"], resource["name"]
        known = group.get(kind, name)
        if known is not None:
            if kind == VMS and body["properties"] != known.body["properties"]:
                error = {
                    "code": "PropertyChangeNotAllowed",
                    "message": "Changing a machine's properties is not allowed.",
                }
                return known.id, error
            known.body = body
            return known.id, None
        if kind != VMS:
            item = Item(group, kind, name, body)
            group.put(item)
            return item.id, None
        return self.fleet.make(group, name, body)

    # -- anything in a group -----------------------------------------------------------------------

    def _list_items(self, request: Request, group: str, kind: str) -> Reply:
        parameters(request, kind)
        self.access.check(request, f"{spelled(kind)}/read", group)
        shown = []
        for item in self._group(group).of_kind(kind):
            if isinstance(item, Vm) and item.hidden > 0:
                item.hidden -= 1
                continue
            shown.append(item.shown())
        return self._paged(request, shown)

    def _get_item(self, request: Request, group: str, kind: str, name: str) -> Reply:
        asked = parameters(request, kind, "$expand")
        self.access.check(request, f"{spelled(kind)}/read", name)
        item = self.admin.item(group, kind, name)
        if isinstance(item, Vm):
            booted = bool(item.host_name) and "SSH HOST KEY" in self.host.console(item.host_name)
            return Reply.of_json(
                item.shown(status=asked.get("$expand") == "instanceView", booted=booted)
            )
        return Reply.of_json(item.shown())

    def _list_reservations(self, request: Request, of: str) -> Reply:
        parameters(request, RESERVATIONS)
        self.access.check(request, READ, of)
        return self._paged(request, self.fleet.reservations.listed(of))

    def _get_reservation(self, request: Request, of: str, name: str) -> Reply:
        asked = parameters(request, RESERVATIONS, "$expand")
        self.access.check(request, READ, of)
        view = asked.get("$expand") == "instanceView"
        return Reply.of_json(self.fleet.reservations.shown(of, name, view=view))

    def _put_rules(self, request: Request, group: str, name: str) -> Reply:
        """Replaces the rules of a security group that exists."""
        parameters(request, RULES)
        self.access.check(request, f"{RULES}/write", name)
        body = request.json()
        check_body(RULES, body)
        item = self.admin.item(group, RULES, name)
        if body["location"] != item.body["location"]:
            raise Refused("InvalidResourceLocation", f"{name} is in {item.body['location']}.", 409)
        item.body = {**item.body, "tags": body.get("tags", {}), "properties": body["properties"]}
        return Reply.of_json(item.shown())

    def _delete_item(self, request: Request, group: str, kind: str, name: str) -> Reply:
        parameters(request, kind, "forceDeletion")
        self.access.check(request, f"{spelled(kind)}/delete", name, group=group)
        item = self.admin.item(group, kind, name)
        if not isinstance(item, Vm):
            owner = next(
                (
                    vm
                    for vm in item.group.of_kind(VMS)
                    if isinstance(vm, Vm) and vm.vm_id == item.made_with
                ),
                None,
            )
            users = owner or (
                item.kind == "Microsoft.Network/virtualNetworks" and item.group.of_kind(INTERFACES)
            )
            if users:
                raise Refused("InUse", f"{item.kind} {name} is in use.", 400)
            item.group.drop(item)
            return Reply(202)
        for part, deleted in item.deleted_with_it:
            if deleted:
                self.access.check(request, f"{part}/delete", name, linked=True, group=group)
        caller = self.access.caller(request)
        if self.failing_deletions:
            self.failing_deletions -= 1
            item.state = "Failed"
            self.fleet.note(item, "delete", "Failed", caller)
            return Reply(202)
        self.fleet.note(item, "delete", "Started", caller)
        self.fleet.end_bill(item, "deleted" if caller == LAUNCHER else "deleted itself")

        def finish() -> None:
            self.fleet.stop(item, GRACE_SECONDS)
            with self.fleet.lock:
                self.fleet.vanish(item)
                self.fleet.note(item, "delete", "Succeeded", caller)

        threading.Thread(target=finish, daemon=True).start()
        places = f"{_address(request)}{_PREFIX}/providers/Microsoft.Compute/locations"
        operation = f"{places}/{item.body['location']}/operations/1"
        return Reply(202, b"", {"Azure-AsyncOperation": operation})

    def _console(self, request: Request, group: str, kind: str, name: str) -> Reply:
        parameters(request, kind, "sasUriExpirationTimeInMinutes")
        self.access.check(request, f"{spelled(kind)}/retrieveBootDiagnosticsData/action", name)
        vm = self.admin.item(group, kind, name)
        if not isinstance(vm, Vm) or not vm.properties.get("diagnosticsProfile", {}).get(
            "bootDiagnostics", {}
        ).get("enabled"):
            raise Refused("OperationNotAllowed", "Boot diagnostics is not enabled.", 409)
        signature = secrets.token_urlsafe(16)
        self._signatures[signature] = vm
        return Reply.of_json(
            {
                "serialConsoleLogBlobUri": f"{_address(request)}/bootdiagnostics/{name}.log?sig={signature}"
            }
        )

    def _simulate_eviction(self, request: Request, group: str, kind: str, name: str) -> Reply:
        parameters(request, kind)
        self.access.check(
            request, "Microsoft.Compute/virtualMachines/simulateEviction/action", group
        )
        self.admin.item(group, kind, name)
        self.evict(name, self.notice_seconds)
        return Reply(204)

    def _get_identity(self, request: Request) -> Reply:
        parameters(request, "Microsoft.ManagedIdentity/userAssignedIdentities")
        self.access.check(
            request, "Microsoft.ManagedIdentity/userAssignedIdentities/read", IDENTITY
        )
        return Reply.of_json(
            {"id": IDENTITY, "properties": self.fleet.identities[IDENTITY.lower()]}
        )

    def _list_roles(self, request: Request) -> Reply:
        self.access.check(request, "Microsoft.Authorization/roleDefinitions/read", _PREFIX)
        asked = parameters(request, "Microsoft.Authorization/roleDefinitions", "$filter")
        known = [{"id": role_id(each), "properties": {"roleName": each}} for each in self.roles]
        filtered = [
            each
            for each in (*known, *self.admin.roles.values())
            if asked["$filter"] == f"roleName eq '{each['properties']['roleName']}'"
        ]
        return Reply.of_json({"value": filtered})

    def _assign_role(self, request: Request, group: str, name: str) -> Reply:
        """The role of machines, for a principal of the directory; a name belongs to one
        assignment."""
        self.access.check(request, "Microsoft.Authorization/roleAssignments/write", group)
        parameters(request, "Microsoft.Authorization/roleAssignments")
        self._group(group)
        uuid.UUID(name)
        values = request.json()["properties"]
        known = {role_id(role) for role in self.roles}
        known |= {str(role["id"]) for role in self.admin.roles.values()}
        if (
            set(values) != {"roleDefinitionId", "principalId", "principalType"}
            or values["roleDefinitionId"] not in known
        ):
            raise Refused(
                "RoleDefinitionDoesNotExist", f"{values} names no role of this subscription."
            )
        if values["principalId"] not in {
            known["principalId"] for known in self.fleet.identities.values()
        }:
            raise Refused(
                "PrincipalNotFound",
                f"Principal {values['principalId']} does not exist in the directory.",
            )
        self.access.assigned.add((group.lower(), values["principalId"]))
        return Reply.of_json({"name": name, "properties": values}, 201)

    def _permissions(self, _: Request) -> Reply:
        return Reply.of_json(
            {"value": [{"actions": ["*"], "notActions": sorted(self.access.denied)}]},
            Date=formatdate(usegmt=True),
        )

    def _get_provider(self, request: Request, namespace: str) -> Reply:
        parameters(request, GROUPS)
        self.access.check(request, "Microsoft.Resources/subscriptions/providers/read", _PREFIX)
        state = self.admin.state_of(namespace)
        return Reply.of_json({"namespace": namespace, "registrationState": state})

    def _list_images(self, request: Request, publisher: str, offer: str, sku: str) -> Reply:
        parameters(request, VMS)
        read = "Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read"
        self.access.check(request, read, _PREFIX)
        if ":".join((publisher, offer, sku)).lower() not in IMAGES:
            raise Refused(
                "NotFound", f"Artifact: VMImage was not found: {publisher} {offer} {sku}", 404
            )
        return Reply.of_json([{"name": "24.04.202601010", "location": "eastus"}])

    def _get_image(self, request: Request, image: str, group: str) -> Reply:
        kind = "images" if "/galleries/" not in image else "galleries/images/versions"
        parameters(request, f"Microsoft.Compute/{kind}")
        self.access.check(request, f"Microsoft.Compute/{kind}/read", group)
        if (disk := self.images.get(image)) is None:
            raise Refused("ResourceNotFound", f"The Resource '{image}' was not found.", 404)
        return Reply.of_json({"id": image, "properties": {"storageProfile": disk}})

    def _usages(self, request: Request) -> Reply:
        parameters(request, VMS)
        self.access.check(request, "Microsoft.Compute/locations/usages/read", _PREFIX)
        spot = {"value": "lowPriorityCores", "localizedValue": "Total Regional Spot vCPUs"}
        cores = {"value": "cores", "localizedValue": "Total Regional vCPUs"}
        limit = 1000 if self.fleet.quota is None else self.fleet.quota
        stated = [(spot, limit), (cores, self.fleet.cores)]
        for family, most in self.fleet.family_cores.items():
            stated.append(({"value": family, "localizedValue": f"{family} vCPUs"}, most))
        return Reply.of_json(
            {
                "value": [
                    {"name": name, "limit": most, "currentValue": 0, "unit": "Count"}
                    for name, most in stated
                ]
            }
        )

    # -- the activity log --------------------------------------------------------------------------

    def _activity(self, request: Request) -> Reply:
        asked = parameters(request, "Microsoft.Insights/eventtypes", "$filter", "$select")
        self.access.check(request, "Microsoft.Insights/eventtypes/values/read", _PREFIX)
        matched = re.fullmatch(
            r"eventTimestamp ge '([^']+)'(?: and eventTimestamp le '([^']+)')? and resourceGroupName eq '([^']+)'",
            asked.get("$filter", ""),
        )
        if not matched:
            raise Refused("BadRequest", f"the filter {asked.get('$filter')} is not supported")
        shown = [
            {name: value for name, value in event.items() if name != "visible"}
            for event in reversed(self.fleet.log)
            if event["resourceGroupName"].lower() == matched[3].lower()
            and event["eventTimestamp"] >= matched[1]
            and event["visible"] <= now_micros()
        ]
        return self._paged(request, shown)


def role_id(role: str) -> str:
    """The id of a role of the subscription."""
    return f"{_PREFIX}/providers/Microsoft.Authorization/roleDefinitions/{uuid.uuid5(uuid.NAMESPACE_DNS, role)}"


def _address(request: Request) -> str:
    """This server as the caller knows it: machines reach it at another address than this
    computer."""
    return f"http://{request.headers['host']}"
