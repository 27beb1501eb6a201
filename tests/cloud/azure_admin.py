"""The administration of a simulated Azure subscription: providers, storage accounts and containers,
managed identities, role definitions and role assignments.

Fields of roles are those of the SDK's models, and of storage accounts those of an example of the
specifications; containers and identities are as spotctl sends them. Refusals are in Azure's words: of a principal
that the directory does not know yet, https://github.com/MicrosoftDocs/azure-docs/issues/103085; of
an account that is not ready, https://github.com/Azure/azure-service-operator/issues/1049; of names
and assignments of roles, https://github.com/Azure/Azure-Landing-Zones/issues/1505 and
https://learn.microsoft.com/azure/role-based-access-control/troubleshooting.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from azure.mgmt.authorization.v2022_04_01 import models

from tests.cloud.azure_access import SKIP, Access, parameters
from tests.cloud.azure_fleet import Fleet
from tests.cloud.azure_state import Body, Group, Item, Refused
from tests.cloud.buckets import PRINCIPAL
from tests.servers.azure import SUBSCRIPTION
from tests.servers.loopback import Reply, Request
from tests.servers.objects import ObjectStore

if TYPE_CHECKING:
    from tests.cloud.azure import Handler

_SCOPE = f"/subscriptions/{SUBSCRIPTION}"
_GROUP = rf"{_SCOPE}/resourcegroups/(?P<group>[^/]+)"
_ROLES, _ASSIGNMENTS = (
    "Microsoft.Authorization/roleDefinitions",
    "Microsoft.Authorization/roleAssignments",
)
ACCOUNTS = "Microsoft.Storage/storageAccounts"
CONTAINERS = f"{ACCOUNTS}/blobServices/containers"
IDENTITIES = "Microsoft.ManagedIdentity/userAssignedIdentities"


def _settable(model: Any) -> set[str]:  # noqa: ANN401 - the SDK's classes have no common type
    """The properties that a request may set, by the SDK's own model."""
    read_only = {name for name, rules in model._validation.items() if rules.get("readonly")}
    return {
        path["key"].removeprefix("properties.")
        for name, path in model._attribute_map.items()
        if name not in read_only
    }


_FIELDS = {
    ACCOUNTS: {"location", "tags", "kind", "sku", "properties"},
    f"{ACCOUNTS} properties": {
        "allowBlobPublicAccess",
        "allowSharedKeyAccess",
        "minimumTlsVersion",
        "supportsHttpsTrafficOnly",
    },
    CONTAINERS: {"properties"},
    f"{CONTAINERS} properties": {"publicAccess"},
    IDENTITIES: {"location", "tags"},
    _ROLES: {"properties"},
    f"{_ROLES} properties": _settable(models.RoleDefinition),
    _ASSIGNMENTS: {"properties"},
    f"{_ASSIGNMENTS} properties": _settable(models.RoleAssignmentCreateParameters),
}
BUILT_IN = {"ba92f5b4-2d11-453d-a403-e96b0029c9fe": "Storage Blob Data Contributor"}


class AzureAdmin:
    """Providers and accounts are ready after `settling` looks. Assignments refuse a new identity
    `late` times, and lists of a group show what is gone `late` times more.
    """

    def __init__(
        self,
        access: Access,
        fleet: Fleet,
        group: Callable[[str], Group],
        unregistered: set[str],
        store: Callable[[], ObjectStore],
    ) -> None:
        self._access, self._fleet, self._group = access, fleet, group
        self._unregistered, self._store = unregistered, store
        self.settling, self.late, self.changes = 0, 0, 0
        self.roles: dict[str, Body] = {}
        self.assignments: dict[str, Body] = {}
        self.containers: dict[str, Body] = {}
        self._registering: dict[str, int] = {}
        self._creating: dict[str, int] = {}
        self._unknown: dict[str, int] = {}
        self.gone: list[tuple[str, Item]] = []

    def things(self) -> set[str]:
        """The roles, containers and assignments that exist."""
        things = {f"role {role['properties']['roleName']}" for role in self.roles.values()}
        things |= {f"container {id_.rpartition('/')[2]}" for id_ in self.containers}
        for each in self.assignments.values():
            own = each["properties"]
            guid = own["roleDefinitionId"].rpartition("/")[2]
            name = BUILT_IN.get(guid) or self.roles[guid]["properties"]["roleName"]
            who = "launcher" if own["principalId"] == PRINCIPAL else "machines"
            things.add(f"{name} of {who} at {own['scope'].rpartition('/')[2]}")
        return things

    def routes(self) -> Iterator[tuple[str, str, Handler]]:
        def counted(handler: Handler) -> Handler:
            def handle(request: Request, **names: str) -> Reply:
                reply = handler(request, **names)
                self.changes += 1
                return reply

            return handle

        provider = rf"{_SCOPE}/providers/(?P<namespace>[\w.]+)"
        yield "POST", f"{provider}/register", counted(self._register)
        account = rf"{_GROUP}/providers/{re.escape(ACCOUNTS)}/(?P<name>[^/]+)"
        identity = rf"{_GROUP}/providers/{re.escape(IDENTITIES)}/(?P<name>[^/]+)"
        for kind, pattern in ((ACCOUNTS, account), (IDENTITIES, identity)):
            put, get, drop = (
                lambda request, kind=kind, act=act, **names: act(request, kind, **names)
                for act in (self._put, self._get, self._delete)
            )
            yield "PUT", pattern, counted(put)
            yield "GET", pattern, get
            yield "DELETE", pattern, counted(drop)
        operation = rf"{_SCOPE}/asyncoperations/(?P<group>[^/]+)/(?P<name>[^/]+)"
        yield "GET", operation, self._operation
        containers = rf"{account}/blobServices/default/containers"
        yield "GET", containers, self._list_containers
        container = rf"{containers}/(?P<container>[^/]+)"
        yield "PUT", container, counted(self._put_container)
        yield "GET", container, self._get_container
        yield "DELETE", container, counted(self._delete_container)
        role = rf"{_SCOPE}/providers/{re.escape(_ROLES)}/(?P<guid>[^/]+)"
        yield "PUT", role, counted(self._put_role)
        yield "GET", role, self._get_role
        yield "DELETE", role, counted(self._delete_role)
        inside = rf"(?P<scope>{_SCOPE}(?:/resourcegroups/[^/]+/providers/.+)?)"
        assignments = rf"{inside}/providers/{re.escape(_ASSIGNMENTS)}"
        yield "GET", assignments, self._list_assignments
        yield "PUT", rf"{assignments}/(?P<name>[^/]+)", counted(self._put_assignment)
        anywhere = rf"(?P<scope>{_SCOPE}(?:/.+)?)/providers/{re.escape(_ASSIGNMENTS)}"
        yield "GET", rf"{anywhere}/(?P<name>[^/]+)", self._get_assignment
        yield "DELETE", rf"{anywhere}/(?P<name>[^/]+)", counted(self._delete_assignment)

    # Providers.

    def _register(self, request: Request, namespace: str) -> Reply:
        self._access.check(request, f"{namespace}/register/action", _SCOPE)
        self._registering.setdefault(namespace.lower(), self.settling)
        return Reply.of_json({"namespace": namespace, "registrationState": "Registering"})

    def state_of(self, namespace: str) -> str:
        """The state of a provider, at each look."""
        name = namespace.lower()
        if name in self._registering:
            self._registering[name] -= 1
            if self._registering[name] >= 0:
                return "Registering"
            self._unregistered.discard(name)
        return "NotRegistered" if name in self._unregistered else "Registered"

    # Storage accounts, identities.

    def item(self, group: str, kind: str, name: str) -> Item:
        """An item of a group; refuses one that is not there."""
        item = self._group(group).get(kind, name)
        if item is None:
            message = f"The Resource '{kind}/{name}' under resource group '{group}' was not found."
            raise Refused("ResourceNotFound", message, 404)
        return item

    def _put(self, request: Request, kind: str, group: str, name: str) -> Reply:
        self._checked(request, kind, "write", name)
        namespace = kind.partition("/")[0]
        if namespace.lower() in self._unregistered:
            message = f"The subscription is not registered to use namespace '{namespace}'."
            raise Refused("MissingSubscriptionRegistration", message, 409)
        body, known = _body(request, kind), self._group(group).get(kind, name)
        item = Item(self._group(group), kind, name, body)
        self._group(group).put(item)
        if kind == IDENTITIES:
            if known is None:
                ids = {"principalId": str(uuid.uuid4()), "clientId": str(uuid.uuid4())}
                self._fleet.identities[item.id.lower()] = ids
                self._unknown[ids["principalId"]] = self.late
            return Reply.of_json(self._shown(item), 200 if known else 201)
        if not re.fullmatch(r"[a-z0-9]{3,24}", name):
            raise Refused("AccountNameInvalid", f"{name} is not a valid storage account name.")
        self._creating[name] = self.settling
        if known:
            return Reply.of_json(self._shown(item))
        place = f"http://{request.headers['host']}{_SCOPE}/asyncoperations/{group}/{name}"
        return Reply(202, b"", {"Location": f"{place}?monitor=true&api-version=2023-05-01"})

    def _operation(self, _: Request, group: str, name: str) -> Reply:
        """An account that is being made: nothing, and then the account."""
        if self._is_creating(name):
            return Reply(202)
        return Reply.of_json(self._shown(self.item(group, ACCOUNTS, name)))

    def _shown(self, item: Item) -> Body:
        shown = item.shown()
        if item.kind == IDENTITIES:
            return shown | {"properties": self._fleet.identities[item.id.lower()]}
        return shown

    def _get(self, request: Request, kind: str, group: str, name: str) -> Reply:
        self._checked(request, kind, "read", name)
        item = self.item(group, kind, name)
        item.state = "Creating" if self._is_creating(name) else "Succeeded"
        return Reply.of_json(self._shown(item))

    def _is_creating(self, name: str) -> bool:
        self._creating[name] = self._creating.get(name, 0) - 1
        return self._creating[name] >= 0

    def _delete(self, request: Request, kind: str, group: str, name: str) -> Reply:
        self._checked(request, kind, "delete", name)
        if (item := self._group(group).get(kind, name)) is None:
            return Reply(204)
        self._group(group).drop(item)
        self._fleet.identities.pop(item.id.lower(), None)
        self.gone += [(group.lower(), item)] * self.late
        self._drop_below(item.id)
        return Reply(200)

    def _drop_below(self, id_: str) -> None:
        """Drops the contents of a resource, and the roles that were assigned there."""
        for held in (self.containers, self.assignments):
            for each in [each for each in held if each.lower().startswith(f"{id_.lower()}/")]:
                del held[each]
        for name in set(self._store().others) - {
            each.rpartition("/")[2] for each in self.containers
        }:
            del self._store().others[name]

    # Containers.

    def _list_containers(self, request: Request, group: str, name: str) -> Reply:
        self._checked(request, CONTAINERS, "read", name)
        below = f"{self.item(group, ACCOUNTS, name).id}/"
        held = [each for id_, each in self.containers.items() if id_.startswith(below)]
        return Reply.of_json({"value": held})

    def _container(self, group: str, name: str, container: str) -> str:
        account = self.item(group, ACCOUNTS, name).id
        return f"{account}/blobServices/default/containers/{container}"

    def _put_container(self, request: Request, group: str, name: str, container: str) -> Reply:
        self._checked(request, CONTAINERS, "write", container)
        id_, body = self._container(group, name, container), _body(request, CONTAINERS)
        if self._is_creating(name):
            message = (
                "The storage account provisioning state must be 'Succeeded' before executing the "
                "operation."
            )
            raise Refused("StorageAccountIsNotProvisioned", message, 409)
        is_new = id_ not in self.containers
        if is_new:
            self._store().add(container)
        self.containers[id_] = {**body, "id": id_, "name": container}
        return Reply.of_json(self.containers[id_], 201 if is_new else 200)

    def _get_container(self, request: Request, group: str, name: str, container: str) -> Reply:
        self._checked(request, CONTAINERS, "read", container)
        if (id_ := self._container(group, name, container)) not in self.containers:
            raise Refused("ContainerNotFound", "The specified container does not exist.", 404)
        return Reply.of_json(self.containers[id_])

    def _delete_container(self, request: Request, group: str, name: str, container: str) -> Reply:
        self._checked(request, CONTAINERS, "delete", container)
        id_ = self._container(group, name, container)
        if self.containers.pop(id_, None) is None:
            return Reply(204)
        self._drop_below(id_)
        return Reply(200)

    # Roles.

    def _put_role(self, request: Request, guid: str) -> Reply:
        self._checked(request, _ROLES, "write", _SCOPE)
        body, guid = _body(request, _ROLES), str(uuid.UUID(guid))
        name = body["properties"]["roleName"]
        same = [each for each in self.roles if self.roles[each]["properties"]["roleName"] == name]
        if same not in ([], [guid]):
            message = "A role definition cannot be updated with a name that already exists."
            raise Refused("RoleDefinitionWithSameNameExists", message, 409)
        id_ = f"{_SCOPE}/providers/{_ROLES}/{guid}"
        self.roles[guid] = {**body, "id": id_, "name": guid}
        return Reply.of_json(self.roles[guid], 201)

    def _get_role(self, request: Request, guid: str) -> Reply:
        self._checked(request, _ROLES, "read", _SCOPE)
        if guid not in self.roles:
            message = f"The specified role definition with ID '{guid}' does not exist."
            raise Refused("RoleDefinitionDoesNotExist", message, 404)
        return Reply.of_json(self.roles[guid])

    def _delete_role(self, request: Request, guid: str) -> Reply:
        self._checked(request, _ROLES, "delete", _SCOPE)
        if any(
            each["properties"]["roleDefinitionId"].endswith(guid)
            for each in self.assignments.values()
        ):
            message = "There are existing role assignments referencing role."
            raise Refused("RoleDefinitionHasAssignments", message)
        return Reply.of_json(known) if (known := self.roles.pop(guid, None)) else Reply(204)

    def _list_assignments(self, request: Request, scope: str) -> Reply:
        self._checked(request, _ASSIGNMENTS, "read", scope)
        asked = request.query["$filter"][0]
        listed = [*self.assignments.values()]
        if matched := re.fullmatch("principalId eq '([^']+)'", asked):
            # Those at this scope, above and below it.
            listed = [
                each
                for each in listed
                if scope.lower().startswith(each["properties"]["scope"].lower())
                or each["properties"]["scope"].lower().startswith(scope.lower())
            ]
        else:
            matched = re.fullmatch(r"atScope\(\) and assignedTo\('([^']+)'\)", asked)
            wide = self._access.everywhere
            listed = [each for each in listed if each["properties"]["scope"] == _SCOPE]
            listed += [{"properties": {"principalId": who, "scope": _SCOPE}} for who in wide]
        assert matched
        who = matched[1]
        return Reply.of_json(
            {"value": [each for each in listed if each["properties"]["principalId"] == who]}
        )

    def _put_assignment(self, request: Request, scope: str, name: str) -> Reply:
        self._checked(request, _ASSIGNMENTS, "write", scope)
        own, name = _body(request, _ASSIGNMENTS)["properties"], str(uuid.UUID(name))
        guid, who = own["roleDefinitionId"].rpartition("/")[2], own["principalId"]
        if guid not in (*BUILT_IN, *self.roles):
            raise Refused(
                "RoleDefinitionDoesNotExist",
                f"The specified role definition '{guid}' does not exist.",
            )
        known = {each["principalId"] for each in self._fleet.identities.values()} | {PRINCIPAL}
        self._unknown[who] = self._unknown.get(who, 0) - 1
        if who not in known or self._unknown[who] >= 0:
            raise Refused("PrincipalNotFound", f"Principal {who} does not exist in the directory.")
        if "condition" in own and own.get("conditionVersion") != "2.0":
            raise Refused("InvalidConditionVersion", "The condition version is not supported.")
        id_ = f"{scope}/providers/{_ASSIGNMENTS}/{name}"
        mine = guid, who, scope.lower()
        for each in self.assignments.values():
            given = each["properties"]
            theirs = (
                given["roleDefinitionId"].rpartition("/")[2],
                given["principalId"],
                given["scope"].lower(),
            )
            if each["id"] == id_ and theirs != mine:
                message = "Tenant ID, application ID, principal ID, and scope are not allowed to be updated."
                raise Refused("RoleAssignmentUpdateNotPermitted", message)
            if each["id"] != id_ and theirs == mine:
                raise Refused("RoleAssignmentExists", "The role assignment already exists.", 409)
        self.assignments[id_] = {"id": id_, "name": name, "properties": {**own, "scope": scope}}
        return Reply.of_json(self.assignments[id_], 201)

    def _get_assignment(self, request: Request, scope: str, name: str) -> Reply:
        self._checked(request, _ASSIGNMENTS, "read", scope)
        id_ = f"{scope}/providers/{_ASSIGNMENTS}/{name}"
        if id_ not in self.assignments:
            raise Refused(
                "RoleAssignmentNotFound", f"The role assignment '{name}' is not found.", 404
            )
        return Reply.of_json(self.assignments[id_])

    def _delete_assignment(self, request: Request, scope: str, name: str) -> Reply:
        self._checked(request, _ASSIGNMENTS, "delete", scope)
        id_ = f"{scope}/providers/{_ASSIGNMENTS}/{name}"
        return Reply.of_json(known) if (known := self.assignments.pop(id_, None)) else Reply(204)

    def _checked(self, request: Request, kind: str, action: str, scope: str) -> None:
        parameters(request, kind, "$filter", SKIP)
        self._access.check(request, f"{kind}/{action}", scope)


def _body(request: Request, kind: str) -> dict[str, Any]:
    body: Body = request.json()
    for given, known in (
        (body, _FIELDS[kind]),
        (body.get("properties", {}), _FIELDS.get(f"{kind} properties", set[str]())),
    ):
        if unknown := sorted(set(given) - known):
            message = f"Could not find member '{unknown[0]}' on object of type '{kind}'."
            raise Refused("InvalidRequestContent", message)
    return body
