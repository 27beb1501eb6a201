"""The resource groups of runs, one for each: how they are made, what machines may do in them, and
how all goes again.

The role of machines lets them delete machines in the groups of the runs that have their identity.
It is assigned for each group, and the assignment ends with the group: it reaches nothing else.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pricing_data.errors import CloudError, RequestRejected, UnknownResource
from spotctl.clouds.azure.calls import MACHINE_ROLE, AzureCalls, Body, Operation, translated
from spotctl.clouds.azure.inventory import Inventory
from spotctl.clouds.azure.orders import GROUP_MARK, GROUP_TAG, AzureOrder, MachineId, checked
from spotctl.clouds.errors import NotFound, Throttled
from spotctl.clouds.provider import MachineRequest, Resource, run_tags
from spotctl.home.errors import BadRequest

_DELETING: Final = "Deleting"


_NAMES: Final = uuid.UUID("0f0c5b0e-7a86-4b7c-9c0e-5d1f6a3b2c11")
"""The namespace of the names of assignments, so that an assignment can be repeated."""


class RunGroups:
    """The groups of one subscription. `company` are the tags that the settings demand."""

    def __init__(self, calls: AzureCalls, company: Mapping[str, str]) -> None:
        self._calls, self._company = calls, company
        self._role = ""
        self._assigned: set[tuple[str, str]] = set()

    def listed(self, tags: Mapping[str, str]) -> Iterator[Body]:
        """The resource groups made by spotctl whose machines may have these tags."""
        mark = f"tagName eq '{GROUP_TAG}' and tagValue eq '{GROUP_MARK}'"
        for group in self._calls.pages(Operation.LIST_GROUPS, filter=mark):
            if _is_ours(group, run_tags(tags)):
                yield group

    def ensure(self, request: MachineRequest, group: str) -> None:
        """Makes the group of a run. BadRequest: a group of this name exists and is not of this
        run."""
        wanted = checked({**self._company, **run_tags(request.tags), GROUP_TAG: GROUP_MARK})
        existing = self._calls.find(Operation.GET_GROUP, group)
        if existing is None:
            body = {"location": request.market.region, "tags": wanted}
            self._calls.send(Operation.PUT_GROUP, group, body)
            return
        if existing["properties"]["provisioningState"] == _DELETING:
            raise Throttled(f"resource group {group} is being deleted; try again once it is gone")

        if not _is_ours(existing, run_tags(request.tags)):
            cure = "delete or rename it"
            raise BadRequest(f"resource group {group} exists and was not made for this run; {cure}")

    def assign_role(self, group: str, identity: str) -> None:
        """Lets machines with this identity delete machines of a group. BadRequest: the role does
        not exist.

        Of an identity that does not exist, the order of the machines says so.
        """
        if (group, identity) in self._assigned:
            return

        known = self._calls.find(Operation.GET_IDENTITY, identity)
        if known is None:
            return

        if not self._role:
            subscription = self._calls.session.subscription_id
            roles = self._calls.listed(
                Operation.LIST_ROLES, subscription, filter=f"roleName eq '{MACHINE_ROLE}'"
            )
            if not roles:
                problem = (
                    f"the subscription has no role {MACHINE_ROLE}, which machines need to delete "
                    "themselves; make it with spotctl setup azure"
                )
                raise BadRequest(problem)
            self._role = str(roles[0]["id"])

        principal = str(known["properties"]["principalId"])
        assignment = {
            "role_definition_id": self._role,
            "principal_id": principal,
            "principal_type": "ServicePrincipal",
        }

        name = str(uuid.uuid5(_NAMES, f"{group} {principal}"))
        self._calls.send(Operation.ASSIGN_ROLE, self._calls.group_id(group), name, assignment)
        self._assigned.add((group, identity))


def _is_ours(group: Body, tags: Mapping[str, str]) -> bool:
    has: Mapping[str, str] = group.get("tags") or {}
    return has.get(GROUP_TAG) == GROUP_MARK and tags.items() <= has.items()


GROUP_KIND: Final = "resource group"
MACHINE_KIND: Final = "machine"
_CLOUD: Final = "azure:"

# The order of removal: a resource comes after those that use it.
_KINDS: Final = {
    "microsoft.compute/virtualmachines": (MACHINE_KIND, Operation.DELETE_MACHINE),
    "microsoft.network/networkinterfaces": ("network interface", Operation.DELETE_INTERFACE),
    "microsoft.network/publicipaddresses": ("address", Operation.DELETE_ADDRESS),
    "microsoft.compute/disks": ("disk", Operation.DELETE_DISK),
    "microsoft.network/virtualnetworks": ("network", Operation.DELETE_NETWORK),
    "microsoft.network/networksecuritygroups": ("network rules", Operation.DELETE_RULES),
}
_IN_USE: Final = (
    "inuse",
    "cannotbedeleted",
    "attachedtovm",
    "reserved",
    "anotheroperationinprogress",
    "conflict",
)


def resources_of(group: Body, items: Iterable[Body]) -> Iterator[Resource]:
    """The resources in a group, with its tags even where Azure made them without tags, and then the
    group itself.
    """
    name, shared = group["name"], dict(group.get("tags") or {})
    for item in items:
        kind = _KINDS.get(str(item["type"]).lower(), (str(item["type"]), None))[0]
        own = item.get("tags") or {}
        order = AzureOrder.read(own)
        id_ = f"{_CLOUD}{item['id']}"
        if kind == MACHINE_KIND and order is not None:
            id_ = str(MachineId(order.market.region, name, item["name"]))

        detail = f"{item['name']} in {item.get('location', name)}"
        yield Resource(kind, id_, {**shared, **own}, detail)

    detail = f"in {group['location']}, with everything in it"
    if group["properties"]["provisioningState"] == _DELETING:
        detail = "being deleted"
    yield Resource(GROUP_KIND, f"{_CLOUD}{group['id']}", shared, detail)


def delete_machine(calls: AzureCalls, inventory: Inventory, machine: MachineId) -> None:
    """Deletes a machine, and notes that if there was something to delete."""
    try:
        with translated():
            answer = calls.send(Operation.DELETE_MACHINE, machine.group, machine.name)
    except NotFound:
        return
    if answer.status != 204:  # 204: there was nothing to delete
        inventory.note_returned(machine)


class Removal:
    """The removal of resources, repeated until they are gone: a resource is free once those that
    use it are gone.
    """

    def __init__(self, calls: AzureCalls, resources: Sequence[Resource]) -> None:
        self._calls = calls
        groups = dict[str, Resource]()
        for resource in resources:
            if resource.kind == GROUP_KIND:
                groups[_group_of(resource.id)] = resource

        alone = list[Resource]()
        for resource in resources:
            if resource.kind != GROUP_KIND and _group_of(resource.id) not in groups:
                alone.append(resource)

        known = [kind for kind, _ in _KINDS.values()]
        in_order = [resource for kind in known for resource in alone if resource.kind == kind]
        others = [resource for resource in alone if resource.kind not in known]
        self._left = [*in_order, *others, *groups.values()]
        self.accepted = set[str]()
        """The ids of groups that Azure is deleting."""

    def advance(self) -> list[str]:
        """Asks for the deletion of all remaining resources, and returns their ids. A failure is
        raised at the end.
        """
        left, failures = list[Resource](), list[CloudError]()
        for resource in self._left:
            try:
                gone = self._try_to_delete(resource)
            except CloudError as error:
                gone, failures = False, [*failures, error]
            if not gone:
                left.append(resource)

        self._left = left
        if failures:
            raise failures[0]
        return [resource.id for resource in left]

    def _try_to_delete(self, resource: Resource) -> bool:
        """Returns whether the resource is gone."""
        if resource.kind == GROUP_KIND:
            return self._delete_group(resource)

        operation = next(
            (operation for kind, operation in _KINDS.values() if kind == resource.kind), None
        )
        if operation is None:
            return True  # goes with its group

        id_ = resource.id.removeprefix(_CLOUD)
        named = (id_,) if operation.version else (_group_of(resource.id), id_.rpartition("/")[2])
        try:
            return self._calls.send(operation, *named).status == 204
        except UnknownResource:
            return True
        except RequestRejected as error:
            if any(word in error.code.lower() for word in _IN_USE):
                return False
            raise

    def _delete_group(self, resource: Resource) -> bool:
        group = _group_of(resource.id)
        body = self._calls.find(Operation.GET_GROUP, group)
        if body is None:
            return True

        tags: Mapping[str, str] = body.get("tags") or {}
        if tags.get(GROUP_TAG) != GROUP_MARK or not resource.tags.items() <= tags.items():
            return True  # another group has taken its name since

        if body["properties"]["provisioningState"] != "Deleting":
            self._calls.send(Operation.DELETE_GROUP, group)
        self.accepted.add(resource.id)
        return False


def _group_of(id_: str) -> str:
    """The resource group in the id of a resource or machine."""
    machine = MachineId.parse(id_)
    if machine is not None:
        return machine.group
    parts = id_.split("/")
    return parts[4] if len(parts) > 4 else ""
