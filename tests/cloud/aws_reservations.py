"""Capacity Reservations and Capacity Blocks of a simulated account, which moto lacks.

After "Launch instances into an existing Capacity Reservation" and "Launch instances using Capacity
Blocks" in the EC2 User Guide: an order that targets a reservation gets its machines from there and
from nowhere else; type and zone must be the reservation's; a Capacity Block is a market type of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.cloud.aws_books import Lease
from tests.cloud.aws_orders import Order, refuse


@dataclass
class CapacityReservation:
    id: str
    type: str
    zone: str
    machines: int
    block: bool = False
    state: str = "active"
    members: list[Lease] = field(default_factory=list)

    @property
    def free(self) -> int:
        return self.machines - sum(lease.running for lease in self.members)


class CapacityReservations:
    """The reservations of an account by id; only the account's owner makes them."""

    def __init__(self) -> None:
        self._known: dict[str, CapacityReservation] = {}

    def reserve(self, reservation: CapacityReservation) -> CapacityReservation:
        self._known[reservation.id] = reservation
        return reservation

    def check(self, order: Order) -> None:
        """Refuses an order that does not fit the reservation that it targets."""
        if not order.reservation:
            if order.block:
                raise refuse(
                    "InvalidParameterCombination",
                    "A Capacity Block needs a capacity reservation target.",
                )
            return
        found = self._known.get(order.reservation)
        if found is None:
            message = f"The capacity reservation '{order.reservation}' does not exist."
            raise refuse("InvalidCapacityReservationId.NotFound", message)
        if found.state != "active":
            message = (
                f"The capacity reservation '{found.id}' is in state '{found.state}', and not "
                "active."
            )
            raise refuse("InvalidCapacityReservationState", message)
        if order.spot or order.block is not found.block:
            raise refuse(
                "InvalidParameterCombination",
                "The market type does not match the capacity reservation.",
            )
        if (order.type, order.zone) != (found.type, found.zone):
            raise refuse(
                "InvalidParameterValue",
                "Instance type or zone do not match the capacity reservation.",
            )

    def granted(self, order: Order) -> int:
        free = self._known[order.reservation].free
        if free < order.least:
            raise refuse(
                "ReservationCapacityExceeded",
                "The requested reservation does not have sufficient compatible and available "
                "capacity for this request",
            )
        return min(free, order.most)

    def join(self, order: Order, leases: list[Lease]) -> None:
        if order.reservation:
            self._known[order.reservation].members += leases
