"""Lists everything in spotctl's resource groups, and removes it in an order that Azure accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pricing_data.errors import CloudError, RequestRejected, UnknownResource
from spotctl.clouds.azure.calls import AzureCalls, Body, Operation
from spotctl.clouds.azure.inventory import Inventory
from spotctl.clouds.azure.names import GROUP_MARK, GROUP_TAG, AzureOrder, MachineId
from spotctl.clouds.azure.refusals import translated
from spotctl.clouds.errors import NotFound
from spotctl.clouds.provider import Resource

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
_IN_USE: Final = ("inuse", "cannotbedeleted", "attachedtovm", "reserved", "anotheroperationinprogress", "conflict")


def group_resource(group: Body) -> Resource:
    """A resource group as something that can be removed."""
    state = group["properties"]["provisioningState"]
    detail = f"in {group['location']}, with everything in it" if state != "Deleting" else "being deleted"
    return Resource(GROUP_KIND, f"{_CLOUD}{group['id']}", dict(group.get("tags") or {}), detail)


def resource_in(group: str, item: Body, shared: Mapping[str, str]) -> Resource:
    """Something in a group, which has the tags of its group even where Azure made it without tags."""
    kind = _KINDS.get(str(item["type"]).lower(), (str(item["type"]), None))[0]
    own = item.get("tags") or {}
    order = AzureOrder.read(own)
    id_ = f"{_CLOUD}{item['id']}"
    if kind == MACHINE_KIND and order is not None:
        id_ = str(MachineId(order.market.region, group, item["name"]))
    return Resource(kind, id_, {**shared, **own}, f"{item['name']} in {item.get('location', group)}")


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
    """The removal of resources, repeated until they are gone: a resource is free once those that use it are gone."""

    def __init__(self, calls: AzureCalls, resources: Sequence[Resource]) -> None:
        self._calls = calls
        groups = {_group_of(resource.id): resource for resource in resources if resource.kind == GROUP_KIND}
        others = [
            resource for resource in resources if resource.kind != GROUP_KIND and _group_of(resource.id) not in groups
        ]
        ranks = [kind for kind, _ in _KINDS.values()]
        others.sort(key=lambda resource: ranks.index(resource.kind) if resource.kind in ranks else len(ranks))
        self._left, self._accepted = [*others, *groups.values()], set[str]()

    @property
    def is_accepted(self) -> bool:
        """Whether nothing remains but groups that Azure is deleting, which takes minutes."""
        return all(resource.id in self._accepted for resource in self._left)

    def advance(self) -> list[str]:
        """Asks for the deletion of all remaining resources, and returns their ids. A failure is raised at the end."""
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
        operation = next((operation for kind, operation in _KINDS.values() if kind == resource.kind), None)
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
        self._accepted.add(resource.id)
        return False


def _group_of(id_: str) -> str:
    """The resource group in the id of a resource or machine."""
    machine = MachineId.parse(id_)
    if machine is not None:
        return machine.group
    parts = id_.split("/")
    return parts[4] if len(parts) > 4 else ""
