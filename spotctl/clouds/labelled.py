"""`LabelledProvider`: the base of providers for clouds that have no client tokens, and forget what
is destroyed.

GPU clouds that rent containers are of this kind. What they have is a label for each instance, which
lists show, though maybe late. An `OrderLedger` stands in for the rest. An instance has a number, or
a name, and a machine's id ends in it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from pricing_data.units import bid_usd
from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import NoCapacity, NotFound, Unanswered, each
from spotctl.clouds.order_ledger import Number, Order, OrderLabel, OrderLedger, Placed
from spotctl.clouds.provider import CloudProvider, Machine, MachineRequest, MachineState, Resource
from spotctl.home.errors import SpotctlError


@dataclass(frozen=True, slots=True)
class Listed:
    """An instance, as a list shows it. `started` None: it does not say; `bid` None: the one of the
    label. One that is PAUSED was outbid, unless `failure` says why else it does not run. `ssh` is
    the address and the port of its sshd, `sign` what its cloud shows of its boot, and `traffic` what
    a GiB costs that it receives and sends, in nano-dollars.
    """

    label: OrderLabel
    state: MachineState
    started: int | None = None
    bid: int | None = None
    failure: str = ""
    ssh: tuple[str, int] | None = None
    sign: str = ""
    traffic: tuple[int, int] = (0, 0)


Purchase = tuple[int | None, Callable[[OrderLabel], Number]]
"""An instance that could be bought: its host, and the call that buys it and returns its number.

NoCapacity: it is gone. Unanswered: it may have been bought.
"""


class LabelledProvider(CloudProvider):
    """A cloud says how its instances are listed, bought and destroyed."""

    _ledger: OrderLedger
    number_type: ClassVar[type[int] | type[str]] = int
    """The form of its instances' numbers."""

    @abstractmethod
    def instances(self) -> Mapping[Number, Listed]:
        """The instances that a list shows with labels of ours, by their numbers."""

    @abstractmethod
    def on_offer(self, request: MachineRequest) -> Iterator[Purchase]:
        """Yields the purchases that a request may make, the best first. The cloud is asked once one
        is needed.
        """

    @abstractmethod
    def destroy(self, number: Number) -> bool:
        """Ends an instance and its bill; False if there is none."""

    def read_back(self, number: Number, bid: int | None) -> None:
        """Destroys an instance that is not what was ordered, and raises UnknownRefusal."""

    def machine_id(self, number: Number) -> str:
        return f"{self.name}:{number}"

    def number_of(self, machine: str) -> Number | None:
        """The number of an instance; None for any other id."""
        number = machine.removeprefix(f"{self.name}:")
        plain = number if self.number_type is int else number.replace("_", "")
        is_ours = number != machine and plain.isascii() and plain.isalnum()
        try:
            return self.number_type(number) if is_ours else None
        except ValueError:
            return None

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. An order without any machine may be repeated."""
        if request.market not in self.offers():
            cure = f"fetch one (spotctl prices fetch --cloud {self.name})"
            raise NotFound(f"{request.market}: no price is known; {cure}")
        with self._ledger.creating(request) as order:
            if not order.closed:
                self._fill(order, self.on_offer(request), request)
        return tuple(machine for key, machine in self._machines() if key == order.key)

    def _fill(self, order: Order, offers: Iterator[Purchase], request: MachineRequest) -> None:
        """Buys the machines that an order lacks. NoCapacity: there is none."""
        for index in range(request.count):
            placed = order.machines[index] if index < len(order.machines) else None
            if placed is not None and placed.is_checked:
                continue

            number = None
            if placed is not None:
                number = (
                    self._asked_before(order, placed) if placed.number is None else placed.number
                )
            if number is None:
                number = self._bought(order, index, offers)
            if number is None:
                break

            self.read_back(number, order.bid)
            with self._ledger.order(order.key) as changed:
                changed.machines[index].is_checked = True

        with self._ledger.order(order.key) as changed:
            changed.closed = bool(changed.machines)
        if not changed.closed:
            price = "on demand" if request.bid is None else f"for {bid_usd(request.bid)} an hour"
            raise NoCapacity(f"{request.market}: no host has a machine {price} now")

    def _asked_before(self, order: Order, asked: Placed) -> Number | None:
        """The number of a machine that was asked for without an answer; None if it does not exist.

        Unanswered: it is too early to say.
        """
        listed = {
            (own.label.order, own.label.index): number for number, own in self.instances().items()
        }
        number, now = listed.get((order.key, asked.index)), self.now()

        # The answer can have been lost long after the note, which comes before all waiting of the
        # call.
        since = now if asked.sought is None else asked.sought
        is_lost = number is None and now - since >= self._ledger.listed_within

        with self._ledger.order(order.key) as changed:
            placed = changed.machines[asked.index]
            placed.number, placed.sought = number, since if number is None else now
            if is_lost:
                changed.machines.remove(placed)

        if number is None and not is_lost:
            unknown = "an order had no answer, and the list may not show it yet; try again"
            raise Unanswered(f"{order.market}: {unknown}")

        return number

    def _bought(self, order: Order, index: int, offers: Iterator[Purchase]) -> Number | None:
        """Takes the first of these offers that is still there; None if none is.

        It is noted before each try that the machine may exist.
        """
        for host, buy in offers:
            with self._ledger.order(order.key) as changed:
                changed.machines.insert(index, Placed(index, self.now(), host=host))
            try:
                number = buy(order.label(index))
            except Unanswered:
                raise
            except SpotctlError as error:
                # It was refused, so nothing was made.
                with self._ledger.order(order.key) as changed:
                    del changed.machines[index]
                if not isinstance(error, NoCapacity):
                    raise
                continue

            with self._ledger.order(order.key) as changed:
                changed.machines[index].number = number
                changed.machines[index].sought = self.now()
            return number
        return None

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """See `CloudProvider`. What is missing from the cloud's list is known from the orders of
        this home.
        """
        return tuple(
            machine for _, machine in self._machines() if tags.items() <= machine.tags.items()
        )

    def _machines(self) -> Sequence[tuple[str, Machine]]:
        """All machines with the keys of their orders."""
        listed, now, machines = (
            dict(self.instances()),
            self.now(),
            dict[Number, tuple[str, Machine]](),
        )
        for order in self._ledger.orders(now):
            for known in order.machines:
                if (number := known.number) is None:
                    continue

                # What the list says of a machine is noted with its order.
                placed, before, shown = known, replace(known), listed.pop(number, None)
                seen, failure = (None, "") if shown is None else (shown.state, shown.failure)
                state = placed.see(seen, now, self._ledger, failure)
                if placed != before:
                    with self._ledger.order(order.key) as changed:
                        placed = changed.machines[placed.index]
                        state = placed.see(seen, now, self._ledger, failure)

                label, bid = order.label(placed.index), None if shown is None else shown.bid
                machine = self._machine(number, label, state, placed.asked, bid)
                if state is MachineState.PAUSED:
                    ended = None if placed.failure else placed.paused
                    machine = replace(machine, ended=ended, failure=placed.failure)
                elif state is MachineState.GONE:
                    end = replace(machine, ended=placed.ended, end_reason=placed.reason)
                    machine = replace(end, failure=placed.failure)
                prices = (0, 0) if shown is None else shown.traffic
                # Such as the pull of an image, while nothing of ours runs there.
                sign = "" if shown is None else shown.sign
                boot = BootSign("ordered", sign) if state is MachineState.STARTING else None
                machine = replace(
                    machine, host=placed.host, traffic_prices=prices, boot=boot if sign else None
                )
                machines[number] = order.key, machine

        for number, instance in listed.items():
            label, started = instance.label, instance.started or now
            machine = self._machine(number, label, instance.state, started, instance.bid)
            machine = replace(machine, failure=instance.failure)
            machines[number] = label.order, machine

        return sorted(machines.values(), key=lambda own: (own[1].started, own[1].id))

    def _machine(
        self, number: Number, label: OrderLabel, state: MachineState, started: int, bid: int | None
    ) -> Machine:
        return Machine(
            self.machine_id(number),
            label.market,
            label.bid if bid is None else bid,
            state,
            started,
            label.tags,
        )

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Tries all, even if one fails; then raises the first failure."""
        numbers = [number for machine in ids if (number := self.number_of(machine)) is not None]
        each(partial(self._terminate, number) for number in dict.fromkeys(numbers))

    def _terminate(self, number: Number) -> None:
        """Notes first that the machine is to end, so that who repeats the call knows who has ended
        it.
        """
        own = []
        for known in self._ledger.orders(self.now()):
            own += [(known.key, placed) for placed in known.machines if placed.number == number]

        if not own:
            self.destroy(number)
            return

        ((key, before),) = own
        with self._ledger.order(key) as order:
            order.machines[before.index].returning = True
        by_itself = not self.destroy(number) and not before.returning
        with self._ledger.order(key) as order:
            order.machines[before.index].end(self.now(), by_itself=by_itself)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        held = []
        for machine in self.list(tags):
            if machine.state is not MachineState.GONE:
                state = machine.state.value
                held.append(Resource("machine", machine.id, machine.tags, state))
        return tuple(held)

    def remove(self, resources: Sequence[Resource]) -> None:
        self.terminate([resource.id for resource in resources])
