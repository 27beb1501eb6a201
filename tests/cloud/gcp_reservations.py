"""Reservations of a simulated project, from which machines that name one are taken.

After "Consume reservations" and "Troubleshoot reservation consumption" in Compute Engine's
documentation: the machine is no spot machine, the reservation was made for machines that name it,
and zone, type, GPUs, local SSDs and CPU platform are equal. The words of refusals are those that
others have seen: cluster-autoscaler's `autoscaling_gce_client`, and
https://github.com/skypilot-org/skypilot/issues/3327.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from google.cloud import compute_v1

from tests.servers.gcp import PROJECT, Refused

KEY = "compute.googleapis.com/reservation-name"
_NAMED = re.compile(
    r"(?:projects/(?P<project>[^/]+)/reservations/)?(?P<name>[a-z]([-a-z0-9]{0,61}[a-z0-9])?)"
)


class Reservations:
    """The reservations that the project can use, by owner, zone and name. `running` lists the
    machines that run, each with its zone."""

    def __init__(self, running: Callable[[], Iterable[tuple[Any, str]]]) -> None:
        self._running = running
        self._known: dict[tuple[str, str, str], compute_v1.Reservation] = {}

    def reserve(
        self,
        name: str,
        zone: str,
        type_: str,
        machines: int,
        **more: Any,  # noqa: ANN401
    ) -> compute_v1.Reservation:
        """Makes a reservation; `owner` is another project that shares it, `specific` whether
        machines must name it.
        """
        owner, specific = more.pop("owner", PROJECT), more.pop("specific", True)
        properties = compute_v1.AllocationSpecificSKUAllocationReservedInstanceProperties(
            machine_type=type_, **more
        )
        held = compute_v1.AllocationSpecificSKUReservation(
            count=machines, instance_properties=properties
        )
        made = compute_v1.Reservation(
            name=name,
            zone=zone,
            status="READY",
            specific_reservation_required=specific,
            specific_reservation=held,
        )
        self._known[owner, zone, name] = made
        return made

    def delete(self, name: str, zone: str) -> None:
        """Deletes a reservation. Its machines go on, and cost what others cost."""
        del self._known[PROJECT, zone, name]

    def free(self, reservation: compute_v1.Reservation) -> int:
        """The machines of a reservation that nothing uses."""
        using = sum(self._named(machine, zone) is reservation for machine, zone in self._running())
        return int(reservation.specific_reservation.count) - using

    def takes(self, machine: Any, zone: str) -> bool:  # noqa: ANN401 - the SDK's messages
        """Whether a machine is of a reservation, which has counted against the quotas since it was
        made.
        """
        return self._named(machine, zone) is not None

    def check(self, machine: Any, zone: str) -> None:  # noqa: ANN401 - the SDK's messages
        """Refuses a machine that names a reservation from which it cannot be taken."""
        affinity = machine.reservation_affinity
        if not affinity.consume_reservation_type:
            return
        named = _NAMED.fullmatch(affinity.values[0]) if len(affinity.values) == 1 else None
        if (
            affinity.consume_reservation_type != "SPECIFIC_RESERVATION"
            or affinity.key != KEY
            or named is None
        ):
            raise _refused("It must name one reservation.")
        path = f"projects/{named['project'] or PROJECT}/reservations/{named['name']}"
        if machine.scheduling.provisioning_model != "STANDARD":
            raise _refused("Reservations are not for spot machines.")
        reservation = self._named(machine, zone)
        if reservation is None:
            raise _refused(f"Specified reservations [{path}] do not exist.")
        if not reservation.specific_reservation_required:
            why = (
                f"Specified reservations [{path}] can not be targeted as "
                "specificReservationRequired is not set"
            )
            raise _refused(why)
        if reservation.status != "READY":
            why = (
                f"Cannot insert instance to a reservation with status: {reservation.status}, as it "
                "requires"
            )
            raise _refused(f"{why} reservation to be in READY state.")
        if not _is_like(machine, reservation.specific_reservation.instance_properties):
            raise _refused("No available resources in specified reservations.")

    # The SDK's messages.
    def refusal(self, machine: Any, zone: str) -> tuple[str, str] | None:  # noqa: ANN401
        """The code and message with which a creation fails, if its reservation is used up."""
        reservation = self._named(machine, zone)
        if reservation is None or self.free(reservation) > 0:
            return None
        message = (
            f"Specified reservation '{reservation.name}' does not have available resources for the "
            "request."
        )
        return "CONDITION_NOT_MET", message

    # The SDK's messages.
    def _named(self, machine: Any, zone: str) -> compute_v1.Reservation | None:  # noqa: ANN401
        values = machine.reservation_affinity.values
        named = _NAMED.fullmatch(values[0]) if values else None
        return (
            self._known.get((named["project"] or PROJECT, zone, named["name"])) if named else None
        )


def _is_like(machine: Any, reserved: Any) -> bool:  # noqa: ANN401 - the SDK's messages
    """Whether a machine has the reserved properties."""
    disks = [one for one in machine.disks if one.type_ == "SCRATCH"]
    asked = (machine.machine_type.rpartition("/")[2], machine.min_cpu_platform, len(disks))
    held = (reserved.machine_type, reserved.min_cpu_platform, len(reserved.local_ssds))
    return asked == held and _gpus(machine) == _gpus(reserved)


def _gpus(of: Any) -> Counter[str]:  # noqa: ANN401 - the SDK's messages
    counts: Counter[str] = Counter()
    for one in of.guest_accelerators:
        counts[one.accelerator_type.rpartition("/")[2]] += one.accelerator_count
    return counts


def _refused(why: str) -> Refused:
    shown = '{  "consumeReservationType": "SPECIFIC_ALLOCATION",  "key": "compute.googleapis.com/reservation-name...'
    return Refused(
        400, f"Invalid value for field 'resource.reservationAffinity': '{shown}'. {why}", "invalid"
    )
