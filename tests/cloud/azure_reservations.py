"""Groups of capacity reservations of a simulated subscription, from which machines that name one
are taken.

After https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview and the pages
next to it: the group must hold a reservation of the machine's size and zone, machines are not Spot
and in no proximity placement group, and a reservation that is used up refuses none: further
machines are on demand, with its quota and capacity. Microsoft does not document the codes of
refusals; those here are of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cloud.azure_state import Body, Refused, Vm
from tests.servers.azure import SUBSCRIPTION

if TYPE_CHECKING:
    from tests.cloud.azure_fleet import Fleet

RESERVATIONS = "Microsoft.Compute/capacityReservationGroups"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/company/providers/{RESERVATIONS}/night"
DEPLOY, READ = f"{RESERVATIONS}/deploy/action", f"{RESERVATIONS}/capacityReservations/read"
ROUTE = (
    r"(?P<of>/subscriptions/[^/]+/resourcegroups/[^/]+/providers/microsoft\.compute/capacityreservationgroups/[^/]+)"
    r"/capacityreservations"
)


@dataclass(frozen=True)
class CapacityReservation:
    """Machines of one size in a zone, or without one."""

    group: str
    name: str
    size: str
    zone: str
    machines: int
    region: str = "eastus"

    def fits(self, vm: Body) -> bool:
        size, zones = vm["properties"]["hardwareProfile"]["vmSize"], vm.get("zones") or [""]
        return (self.size.lower(), [self.zone], self.region) == (
            size.lower(),
            zones,
            vm["location"],
        )


class CapacityReservations:
    """The groups of a subscription and of those that share theirs with it; a group has one
    reservation of each kind.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: list[CapacityReservation] = []

    def reserve(
        self, size: str, machines: int, zone: str = "", group: str = GROUP
    ) -> CapacityReservation:
        made = CapacityReservation(group, f"reserved-{len(self._known)}", size, zone, machines)
        self._known.append(made)
        return made

    def allocated(self, reservation: CapacityReservation) -> list[Vm]:
        """The machines that use a reservation, or are allocated beyond it."""
        return [vm for vm in self._fleet.alive() if self._of(vm.body) == reservation]

    def free(self, reservation: CapacityReservation) -> int:
        return max(reservation.machines - len(self.allocated(reservation)), 0)

    def beyond(self, *parts: list[Body]) -> tuple[list[Body], ...]:
        """The machines in each list for which nothing is reserved, if those in earlier lists come
        first.
        """
        left = {reservation.name: reservation.machines for reservation in self._known}
        others: tuple[list[Body], ...] = tuple([] for _ in parts)
        for vms, rest in zip(parts, others, strict=True):
            for vm in vms:
                reservation = self._of(vm)
                if reservation is None or not left[reservation.name]:
                    rest.append(vm)
                else:
                    left[reservation.name] -= 1
        return others

    def check(self, vm: Body) -> None:
        """Refuses a machine that its group has no reservation for."""
        named = _group_of(vm)
        if not named:
            return
        properties = vm["properties"]
        if properties.get("priority") == "Spot" or "proximityPlacementGroup" in properties:
            raise _invalid(
                "OperationNotAllowed",
                "Capacity reservation does not support Spot or placement groups.",
            )
        if not any(known.group.lower() == named for known in self._known):
            raise _invalid(
                "InvalidParameter", f"The capacity reservation group '{named}' was not found."
            )
        if self._of(vm) is None:
            size = properties["hardwareProfile"]["vmSize"]
            why = (
                f"has no matching capacity reservation for size '{size}' and zones "
                f"{vm.get('zones') or []}."
            )
            raise _invalid("BadRequest", f"The capacity reservation group '{named}' {why}")

    def listed(self, of: str) -> list[Body]:
        """The reservations of a group."""
        members = [known for known in self._known if known.group.lower() == of.lower()]
        if not members:
            raise Refused(
                "ResourceNotFound",
                f"The Resource '{of.partition('/providers/')[2]}' was not found.",
                404,
            )
        return [self._shown(member) for member in members]

    def shown(self, of: str, name: str, *, view: bool) -> Body:
        """One of a group, with its use if that is asked for."""
        shown = {str(body["name"]): body for body in self.listed(of)}
        if name not in shown:
            raise Refused(
                "ResourceNotFound", f"The Resource '{RESERVATIONS}/{name}' was not found.", 404
            )
        member = next(known for known in self._known if known.name == name)
        if view:
            allocated = [{"id": vm.id} for vm in self.allocated(member)]
            use = {"currentCapacity": member.machines, "virtualMachinesAllocated": allocated}
            shown[name]["properties"]["instanceView"] = {"utilizationInfo": use}
        return shown[name]

    def _of(self, vm: Body) -> CapacityReservation | None:
        named = _group_of(vm)
        return next(
            (known for known in self._known if known.group.lower() == named and known.fits(vm)),
            None,
        )

    @staticmethod
    def _shown(member: CapacityReservation) -> Body:
        return {
            "id": f"{member.group}/capacityReservations/{member.name}",
            "name": member.name,
            "type": f"{RESERVATIONS}/capacityReservations",
            "location": member.region,
            "sku": {"name": member.size, "capacity": member.machines},
            **({"zones": [member.zone]} if member.zone else {}),
            "properties": {"provisioningState": "Succeeded"},
        }


def _group_of(vm: Body) -> str:
    profile = vm["properties"].get("capacityReservation") or {}
    return str((profile.get("capacityReservationGroup") or {}).get("id", "")).lower()


def _invalid(code: str, message: str) -> Refused:
    wrapped = (
        "The template deployment is not valid according to the validation procedure. See inner "
        "errors."
    )
    return Refused(
        "InvalidTemplateDeployment", wrapped, details=[{"code": code, "message": message}]
    )
