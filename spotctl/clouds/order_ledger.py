"""`OrderLedger`: what this home has ordered on a cloud that has no client tokens, and forgets what is destroyed.

An order is a file, whose content is replaced before an instance is asked for and once its number is known. So an
order that is repeated buys nothing twice: what was asked for and not answered is looked for in the list, by its label,
and is only asked for again once a list would show it. Without the files, labels still say what exists.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlencode

import msgspec

from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import DAY, SECOND
from spotctl.clouds.errors import TokenTaken
from spotctl.clouds.provider import EndReason, MachineRequest, MachineState, fingerprint
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG

KEPT = 14 * DAY
"""How long an order is kept whose machines are gone."""

_MARK = "spotctl"
_SHORT = {INSTALLATION_TAG: "i", RUN_TAG: "r", INTENT_TAG: "n"}
_LONG = {short: tag for tag, short in _SHORT.items()}


@dataclass(frozen=True, slots=True)
class OrderLabel:
    """The order of an instance, and which of its machines it is. Two with the same label would be one too many.

    `order` stands for the token, `print` for the whole request; `bid` None: on demand.
    """

    order: str
    index: int
    print: str
    bid: int | None
    market: Market
    tags: Mapping[str, str]

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """The label of an instance; None if it is not one of ours."""
        words = (text or "").split(" ")
        if len(words) != 7 or words[0] != _MARK:
            return None
        _, order, index, print_, bid, market, tags = words
        try:
            known = {_LONG.get(name, name): value for name, value in parse_qsl(tags, keep_blank_values=True)}
            return cls(order, int(index), print_, None if bid == "-" else int(bid), Market.parse(market), known)
        except (ValueError, BadInput):
            return None

    @property
    def machine(self) -> str:
        """A name of the machine that is known before it is ordered."""
        return f"{self.order} {self.index}"

    def text(self, longest: int) -> str:
        """The label for a cloud whose labels have at most this many characters."""
        tags = urlencode({_SHORT.get(name, name): value for name, value in self.tags.items()})
        bid = "-" if self.bid is None else self.bid
        text = f"{_MARK} {self.order} {self.index} {self.print} {bid} {self.market} {tags}"
        if len(text) > longest:
            raise BadRequest(
                f"{self.market.cloud}: the label of an instance would have {len(text)} characters, but the limit is"
                f" {longest}: give the job a shorter name, or fewer tags"
            )
        return text


@dataclass(frozen=True, slots=True)
class ListTimes:
    """How far a list of instances is trusted. Assumed, and generous, where a cloud says nothing about it.

    The list shows a new instance `listed_within` this time, and one that it does not show for `gone_after` is gone.
    """

    listed_within: int = 60 * SECOND
    gone_after: int = 30 * SECOND


@dataclass(frozen=True, slots=True)
class Placed:
    """One machine of an order, asked for at `asked`; `number` is that of its instance, None without an answer, and
    `host` the host whose offer was taken.

    `sought` is since when lists are expected to show it: its answer came then, or was first missed. `is_checked` once
    it was read back, `is_listed` once a list has shown it, `returning` once it is to be destroyed. `paused` is since
    when it does not run, `missing` since when no list has it.
    """

    index: int
    asked: int
    number: int | None = None
    sought: int | None = None
    is_checked: bool = False
    is_listed: bool = False
    returning: bool = False
    paused: int | None = None
    missing: int | None = None
    ended: int | None = None
    reason: EndReason | None = None
    host: int | None = None

    def seen(self, shown: MachineState | None, now: int, times: ListTimes) -> Self:
        """The machine after a list that shows it in this state, or lacks it.

        A list may be late, so no machine is gone by one list alone, and one that counted as gone may be shown again.
        """
        if shown is not None:
            paused = (self.paused or now) if shown is MachineState.PAUSED else None
            back = self if self.returning else replace(self, ended=None, reason=None)
            return replace(back, is_listed=True, missing=None, paused=paused)
        if self.ended is not None or not (self.is_listed or now - (self.sought or self.asked) > times.listed_within):
            return self
        since = now if self.missing is None else self.missing
        missing = replace(self, missing=since)
        return missing if now - since < times.gone_after else missing.over(since, by_itself=not self.returning)

    def state(self, shown: MachineState | None) -> MachineState:
        """Where the machine is, once it was `seen` so."""
        if shown is not None:
            return shown if self.ended is None else MachineState.LEAVING
        if self.ended is not None:
            return MachineState.GONE
        return MachineState.STARTING if self.missing is None else MachineState.LEAVING

    def over(self, at: int, *, by_itself: bool) -> Self:
        """The machine once it is gone. One that was paused ended when it stopped running."""
        if self.ended is not None:
            return self
        if self.paused is not None:
            return replace(self, ended=self.paused, reason=EndReason.EVICTED)
        return replace(self, ended=at, reason=EndReason.LEASE_ENDED if by_itself else EndReason.RETURNED)


@dataclass(frozen=True, slots=True)
class Order:
    """A request, and the machines that it has so far. No more are asked for once it is `closed`."""

    key: str
    print: str
    market: str
    bid: int | None
    tags: dict[str, str]
    closed: bool = False
    machines: tuple[Placed, ...] = ()

    def label(self, index: int) -> OrderLabel:
        return OrderLabel(self.key, index, self.print, self.bid, Market.parse(self.market), self.tags)

    def machine(self, index: int) -> Placed | None:
        return next((placed for placed in self.machines if placed.index == index), None)

    def having(self, machine: Placed) -> Self:
        """The order with this machine in place of the one of its index."""
        machines = (*self.without(machine.index).machines, machine)
        return replace(self, machines=tuple(sorted(machines, key=lambda placed: placed.index)))

    def without(self, index: int) -> Self:
        return replace(self, machines=tuple(placed for placed in self.machines if placed.index != index))

    def is_over(self, now: int) -> bool:
        """Whether it may be forgotten."""
        ends = [placed.ended for placed in self.machines]
        return self.closed and all(end is not None and now - end > KEPT for end in ends)


class OrderLedger:
    """The orders in a folder, for all processes of a home."""

    def __init__(self, folder: Path, times: ListTimes | None = None) -> None:
        self._folder, self.times = folder, times or ListTimes()

    def orders(self, now: int) -> list[Order]:
        """All orders that are not to be forgotten."""
        known = []
        for path in sorted(self._folder.glob("*.json")):
            order = self._read(path)
            if order is not None and order.is_over(now):
                path.unlink(missing_ok=True)
            elif order is not None:
                known.append(order)
        return known

    def order_with(self, number: int, now: int) -> tuple[Order, Placed] | None:
        """The machine whose instance has this number, and its order."""
        machines = ((order, placed) for order in self.orders(now) for placed in order.machines)
        return next(((order, placed) for order, placed in machines if placed.number == number), None)

    @contextmanager
    def creating(self, request: MachineRequest) -> Iterator[Order]:
        """The order of a request, while no other is carried out. TokenTaken: the token is that of another request."""
        key, market = hashlib.sha256(request.token.encode()).hexdigest()[:16], request.market
        new = Order(key, fingerprint(request), str(market), request.bid, dict(request.tags))
        with self._locked("creating"):
            order = self.change(key, lambda known: known, new)
            if order.print != new.print:
                raise TokenTaken(f"{market.cloud}: token {request.token!r} was used for another request")
            yield order

    def change(self, key: str, changed: Callable[[Order], Order], new: Order | None = None) -> Order:
        """Replaces an order, or a `new` one, by what `changed` makes of it; it is on the disk when this returns."""
        path = self._folder / f"{key}.json"
        with self._locked("changing"):
            before = self._read(path)
            known = before or new
            assert known is not None
            after = changed(known)
            if after != before:
                self._write(path, msgspec.json.encode(after))
        return after

    def change_machine(self, key: str, index: int, changed: Callable[[Placed], Placed]) -> Placed:
        """Replaces a machine of an order, which has it."""

        def of_order(order: Order) -> Order:
            machine = order.machine(index)
            assert machine is not None
            return order.having(changed(machine))

        machine = self.change(key, of_order).machine(index)
        assert machine is not None
        return machine

    def _read(self, path: Path) -> Order | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Order)
        except FileNotFoundError:
            return None

    def _write(self, path: Path, content: bytes) -> None:
        part = path.with_name(f".{path.name}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
