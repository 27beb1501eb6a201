"""`OrderLedger`: what this home has ordered on a cloud that has no client tokens, and forgets what
is destroyed.

An order is a file, which changes before an instance is asked for and once its number is known. So
an order that is repeated buys nothing twice: what was asked for and not answered is looked for in
the list, by its label, and is only asked for again once a list would show it. Without the files,
labels still say what exists.

What changes an order holds it (`with ledger.order(key) as order`), and is on the disk after the
block. No block waits for the cloud: `creating` keeps other orders away meanwhile, and lists and
returns go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlencode

import msgspec

from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import DAY, SECOND
from spotctl.agent.files import exclusive, replace_json
from spotctl.clouds.errors import TokenTaken
from spotctl.clouds.provider import EndReason, MachineRequest, MachineState, fingerprint
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG

KEPT = 14 * DAY
"""How long an order is kept whose machines are gone."""

Number = int | str
"""The number of an instance at its cloud, or its name where a cloud has no numbers."""

_MARK = "spotctl"
_SHORT = {INSTALLATION_TAG: "i", RUN_TAG: "r", INTENT_TAG: "n"}
_LONG = {short: tag for tag, short in _SHORT.items()}


@dataclass(frozen=True, slots=True)
class OrderLabel:
    """The order of an instance, and which of its machines it is. Two with the same label would be
    one too many.

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
            known = {
                _LONG.get(name, name): value
                for name, value in parse_qsl(tags, keep_blank_values=True)
            }
            return cls(
                order,
                int(index),
                print_,
                None if bid == "-" else int(bid),
                Market.parse(market),
                known,
            )
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
            problem = (
                f"{self.market.cloud}: the label of an instance would have {len(text)} "
                f"characters, but the limit is {longest}: give the job a shorter name, or fewer "
                "tags"
            )
            raise BadRequest(problem)

        return text


@dataclass(slots=True)
class Placed:
    """One machine of an order, asked for at `asked`; `number` is that of its instance, None without
    an answer, and `host` the host whose offer was taken.

    `sought` is since when lists are expected to show it: its answer came then, or was first missed.
    `is_checked` once it was read back, `is_listed` once a list has shown it, `returning` once it is
    to be destroyed. `paused` is since when it does not run, and `failure` why, unless it was outbid;
    `missing` is since when no list has it.
    """

    index: int
    asked: int
    number: Number | None = None
    sought: int | None = None
    is_checked: bool = False
    is_listed: bool = False
    returning: bool = False
    paused: int | None = None
    missing: int | None = None
    ended: int | None = None
    reason: EndReason | None = None
    host: int | None = None
    failure: str = ""

    def see(
        self, shown: MachineState | None, now: int, ledger: OrderLedger, failure: str = ""
    ) -> MachineState:
        """Notes that a list shows the machine in this state, or lacks it; returns where it is then.

        A list may be late, so no machine is gone by one list alone, and one that counted as gone
        may be shown again.
        """
        if shown is not None:
            self.is_listed, self.missing, self.failure = True, None, failure
            self.paused = (self.paused or now) if shown is MachineState.PAUSED else None
            if not self.returning:
                self.ended = self.reason = None
            return shown if self.ended is None else MachineState.LEAVING

        is_expected = self.is_listed or now - (self.sought or self.asked) > ledger.listed_within
        if self.ended is None and is_expected:
            self.missing = now if self.missing is None else self.missing
            if now - self.missing >= ledger.gone_after:
                self.end(self.missing, by_itself=not self.returning)

        if self.ended is not None:
            return MachineState.GONE
        return MachineState.STARTING if self.missing is None else MachineState.LEAVING

    def end(self, at: int, *, by_itself: bool) -> None:
        """Notes that the machine is gone. One that was paused ended when it stopped running."""
        if self.ended is not None:
            return
        if self.paused is not None:
            # Who is outbid pays no more; of what has failed, no page says when the bill ends.
            self.ended = at if self.failure else self.paused
            self.reason = EndReason.FAILED if self.failure else EndReason.EVICTED
        else:
            self.ended = at
            self.reason = EndReason.LEASE_ENDED if by_itself else EndReason.RETURNED


@dataclass(slots=True)
class Order:
    """A request, and the machines that it has so far, each at its index.

    No more are asked for once it is `closed`.
    """

    key: str
    print: str
    market: str
    bid: int | None
    tags: dict[str, str]
    closed: bool = False
    machines: list[Placed] = field(default_factory=list)

    def label(self, index: int) -> OrderLabel:
        market = Market.parse(self.market)
        return OrderLabel(self.key, index, self.print, self.bid, market, self.tags)


class OrderLedger:
    """The orders in a folder, for all processes of a home, and how far a list of instances is
    trusted: it shows a new instance `listed_within` this time, and one that it does not show for
    `gone_after` is gone. Assumed, and generous, where a cloud says nothing about it.
    """

    def __init__(
        self, folder: Path, listed_within: int = 60 * SECOND, gone_after: int = 30 * SECOND
    ) -> None:
        self._folder = folder
        self.listed_within, self.gone_after = listed_within, gone_after

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Keeps the other processes of the home away, and this one's other threads."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive(self._folder / f"{name}.lock"):
            yield

    @contextmanager
    def order(self, key: str, new: Order | None = None) -> Iterator[Order]:
        """An order, or a `new` one, to change: on the disk after the block, unless that failed."""
        path = self._folder / f"{key}.json"
        with self._locked("changing"):
            order = msgspec.json.decode(path.read_bytes(), type=Order) if path.exists() else new
            assert order is not None, key
            yield order
            replace_json(path, msgspec.to_builtins(order), lasting=True)

    def orders(self, now: int) -> list[Order]:
        """All orders but those whose machines have been gone for long, which are forgotten."""
        known = []
        with self._locked("changing"):
            # A writer that was killed may have left a part of a file, whose name begins with a dot.
            for path in sorted(self._folder.glob("[!.]*.json")):
                order = msgspec.json.decode(path.read_bytes(), type=Order)
                ends = [placed.ended for placed in order.machines]
                if order.closed and all(end is not None and now - end > KEPT for end in ends):
                    path.unlink()
                else:
                    known.append(order)

        return known

    @contextmanager
    def creating(self, request: MachineRequest) -> Iterator[Order]:
        """The order of a request, as it was, while no other is carried out.

        TokenTaken: the token is that of another request.
        """
        key, market = hashlib.sha256(request.token.encode()).hexdigest()[:16], request.market
        new = Order(key, fingerprint(request), str(market), request.bid, dict(request.tags))
        with self._locked("creating"):
            with self.order(key, new) as order:
                is_same = order.print == new.print
            if not is_same:
                taken = f"token {request.token!r} was used for another request"
                raise TokenTaken(f"{market.cloud}: {taken}")
            yield order
