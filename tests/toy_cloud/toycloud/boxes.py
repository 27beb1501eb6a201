"""A sibling of the toy cloud that rents boxes, which are containers: less is known of them than of
machines.

`Boxes` is the cloud: each call for a box buys another one, because there are no tokens. Its list
shows a box late, with the label that it was rented with, and forgets a box that has ended. A box
that was outbid is paused, and stays listed. `BoxProvider` makes of that what the contract of
providers asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from pricing_data.units import SECOND
from spotctl.clouds.errors import NotFound, Unanswered
from spotctl.clouds.labelled import LabelledProvider, Listed, Purchase
from spotctl.clouds.order_ledger import Number, OrderLabel, OrderLedger
from spotctl.clouds.provider import Machine, MachineRequest, MachineState
from toycloud.price_list import CLOUD

if TYPE_CHECKING:
    from pricing_data.market import Market
    from pricing_data.series import PriceSeries
    from spotctl.clouds.link import AgentLink, MachineSupplies
    from toycloud.provider import ToyProvider

LATE = 5 * SECOND
"""How late a list shows a box."""

LONGEST_LABEL = 200


@dataclass
class Box:
    """A rented box, and the process that it is; a paused one has none."""

    label: str
    made: int
    process: Machine
    is_paused: bool = False


@dataclass
class Boxes:
    """The cloud. The answers to the next `lost` orders never arrive."""

    toy: ToyProvider
    lost: int = 0
    rented: dict[Number, Box] = field(default_factory=dict)

    def rent(self, request: MachineRequest, label: str) -> int:
        """The number of a new box."""
        number = len(self.rented)
        (process,) = self.toy.create(replace(request, token=f"box {number}", count=1))
        self.rented[number] = Box(label, self.toy.now(), process)
        if self.lost:
            self.lost -= 1
            raise Unanswered("the toy cloud: the answer was lost; try again")
        return number

    def existing(self) -> dict[Number, Box]:
        """The boxes that have not ended."""
        alive = {
            process.id: process
            for process in self.toy.list({})
            if process.state is not MachineState.GONE
        }
        return {
            number: replace(box, process=alive.get(box.process.id, box.process))
            for number, box in self.rented.items()
            if box.process.id in alive or box.is_paused
        }

    def listed(self) -> dict[Number, Box]:
        return {
            number: box
            for number, box in self.existing().items()
            if self.toy.now() - box.made >= LATE
        }

    def outbid(self, number: int) -> None:
        self.rented[number].is_paused = True
        self.toy.terminate([self.rented[number].process.id])

    def destroy(self, number: Number) -> bool:
        """Whether there was such a box."""
        if number not in self.existing():
            return False
        self.rented[number].is_paused = False
        self.toy.terminate([self.rented[number].process.id])
        return True


class BoxProvider(LabelledProvider):
    """See the module's text."""

    name = CLOUD

    def __init__(self, boxes: Boxes, ledger: OrderLedger) -> None:
        self._boxes, self._ledger, self._toy = boxes, ledger, boxes.toy

    @property
    def speed(self) -> float:
        return self._toy.speed

    def now(self) -> int:
        return self._toy.now()

    def offers(self) -> tuple[Market, ...]:
        return self._toy.offers()

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        return self._toy.prices(market, start, end)

    def instances(self) -> Mapping[Number, Listed]:
        labels = {
            number: (box, OrderLabel.parse(box.label))
            for number, box in self._boxes.listed().items()
        }
        return {
            number: Listed(label, _state(box), box.made)
            for number, (box, label) in labels.items()
            if label
        }

    def on_offer(self, request: MachineRequest) -> Iterator[Purchase]:
        return repeat((None, partial(self._buy, request)), request.count)

    def _buy(self, request: MachineRequest, label: OrderLabel) -> int:
        return self._boxes.rent(request, label.text(LONGEST_LABEL))

    def destroy(self, number: Number) -> bool:
        return self._boxes.destroy(number)

    def link(self, machine: str) -> AgentLink:
        return self._toy.link(self._process(machine))

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        self._toy.prepare(replace(machine, id=self._process(machine.id)), supplies)

    def _process(self, machine: str) -> str:
        number = self.number_of(machine)
        box = None if number is None else self._boxes.rented.get(number)
        if box is None:
            raise NotFound(f"{machine}: never existed", (machine,))
        if box.is_paused:
            raise Unanswered(f"{machine}: paused, because it was outbid")
        return box.process.id


def _state(box: Box) -> MachineState:
    return MachineState.PAUSED if box.is_paused else box.process.state
