"""The state of a run, as `folding` computes it from the events.

The work of a command is counted in time on all nodes: on half of the nodes, the same work takes
twice as long. Work done before the newest checkpoint is safe; later work is done again.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from bidbrain.billing import highest_price
from pricing_data.market import NO_ZONE, Market
from pricing_data.units import HOUR
from spotctl.home.cloud import is_replayed
from spotctl.log import events as ev
from spotctl.log.events import Event, Intended


class LogRow(NamedTuple):
    """An event with its position in the log and its time."""

    id: int
    run: str
    at: int
    event: Event


EVICTED, LEASE_ENDED, BROKE = "evicted", "lease ended", "failed"
_UNREQUESTED_ENDS = frozenset({LEASE_ENDED, BROKE})
"""The ends of machines that neither the launcher returned nor the cloud evicted."""

NOT_LISTED = "not listed any more"
"""The end of a machine that is missing in the provider's list. A machine that is listed again has
not ended."""

MAX_PACES = 128
"""More moments of a training's progress would hardly change its median speed."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Machines that were rented together; `number` is that of the intent to rent them."""

    number: int
    market: Market
    bid: int | None
    on_demand: int
    nu: float
    reliable: bool
    started: int
    leaves_at: int | None = None
    disk: int = 0
    address: int = 0
    list_price: int = 0

    @property
    def listed(self) -> int:
        """The on-demand list price of a machine; if that of reserved machines is unknown, what they
        cost.
        """
        return self.list_price or self.on_demand

    def highest_price(self, bid: int | None) -> int:
        """The most that an hour of one of the machines can cost at a bid, in nano-dollars, without
        disk and address.
        """
        return highest_price(self.market.cloud, bid, self.on_demand)


@dataclass(frozen=True)
class Held:
    """A machine, also after its end.

    `granted_at` is when its order was answered, `phase` how far its boot has come, and `sign`,
    shown at `signed_at`, its last sign of life there. `silence` is why it counted as silent, or
    what failed, at `silent_at`, and `console` the end of its console (`boots`). `ran` is when it was first seen
    running. `turns` alternate between when it began to work and when it stopped, as far as the work
    reports it. `returned_at` is when its return was last requested. `leaves_at` is when it is
    returned apart from its allocation: the budget does not cover another lease. `cards`, noted at
    `cards_at`, is how busy its GPUs are, and `traffic`, noted at `traffic_at`, what it has received
    and sent. `bids` are what it has bid, each from a moment on, and `host` is where, if that is
    known; a machine on demand has none.
    """

    id: str
    allocation: int
    started: int
    lease_until: int
    granted_at: int = 0
    phase: str = "ordered"
    sign: str = ""
    signed_at: int = 0
    silence: str = ""
    silent_at: int = 0
    console: str = ""
    running: bool = False
    ran: int | None = None
    turns: tuple[int, ...] = ()
    warned_until: int | None = None
    returned_at: int | None = None
    leaves_at: int | None = None
    gpus: ev.CardsUsed | None = None
    gpus_at: int = 0
    traffic: ev.TrafficCounted | None = None
    traffic_at: int = 0
    ended: int | None = None
    end_reason: str = ""
    host: int | None = None
    bids: tuple[tuple[int, int], ...] = ()

    @property
    def bid(self) -> int | None:
        """The bid of the machine now; None on demand."""
        return self.bids[-1][1] if self.bids else None

    @property
    def alive(self) -> bool:
        """Whether the machine is not known to be gone."""
        return self.ended is None

    @property
    def useless(self) -> bool:
        """Whether the machine was silent, or ended by itself, before its agent ever answered."""
        if self.ran is not None or self.silence:
            return self.ran is None
        if self.ended is None or self.end_reason == EVICTED:
            return False
        return self.end_reason in _UNREQUESTED_ENDS or self.ended >= self.lease_until

    def exists_at(self, now: int) -> bool:
        """Whether the machine may exist: its lease has not ended, on a clock that was not set back
        since.
        """
        return self.alive and self.started <= now + HOUR and now < self.lease_until

    @property
    def returning(self) -> bool:
        """Whether the return of the machine was requested."""
        return self.returned_at is not None


@dataclass(frozen=True, slots=True)
class BackOff:
    """A market's spot or on-demand machines in back-off until `until`, after `times` refusals or
    evictions in a row.

    A market that refused, or whose machines never answered, is not asked at all. A market that
    evicts machines at `evicting_at` is not asked before that moment, and afterwards only if no
    other market is left. One that does not exist for the account is not asked again for a day. With
    a `scope`, all this holds for more markets: see `covers`.
    """

    until: int
    times: int
    evicting_at: int | None
    exists: bool = True
    scope: str = ""


@dataclass(frozen=True, slots=True)
class RefusedOrder:
    """An order of some machines that brought none, in the scope of the refusal."""

    at: int
    machines: int
    scope: str = ""


_SCOPES = {
    "type": attrgetter("cloud", "region", "instance_type", "os", "reservation"),
    "zone": attrgetter("cloud", "region", "zone"),
    "region": attrgetter("cloud", "region"),
    "organisation": attrgetter("cloud", "region"),
    "account": attrgetter("cloud"),
}
"""The parts of their names that the markets of a scope share. Organisations rule by region, if at
all."""


def covers(scope: str, refused: Market, market: Market) -> bool:
    """Whether a refusal of one market, with this scope, holds for another."""
    common = _SCOPES.get(scope)
    if common is None or (scope == "zone" and refused.zone == NO_ZONE):
        return market == refused
    return bool(common(refused) == common(market))


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt that is over, the part of the planned speed that it had, and how much of its work
    checkpoints kept.
    """

    begin: int
    end: int
    kept: int
    share: float = 1.0

    @property
    def worked(self) -> int:
        """The work that the attempt did, kept or not."""
        return round((self.end - self.begin) * self.share)

    @property
    def lasting(self) -> int:
        """The time in which the attempt did the work that checkpoints kept."""
        return round(self.kept / self.share)


@dataclass(frozen=True, slots=True)
class CommandWork:
    """The newest attempt (None before the first) and its start; its stop, if it was stopped, and
    when.

    `safe` is the work, in microseconds of the provider's clock on all nodes, that checkpoints hold;
    `base` is what they held when the attempt began, and `lost` what had been done beyond that.
    `checkpoint` is the newest of the first node, which became known at `checkpointed_at`. `moves`
    counts stops in a row that the program itself asked for, `failures` those after it had failed,
    by status.
    """

    attempt: ev.AttemptBegan | None = None
    since: int = 0
    stopped: ev.AttemptStopped | None = None
    stopped_at: int = 0
    base: int = 0
    lost: int = 0
    safe: int = 0
    checkpoint: ev.Checkpointed | None = None
    checkpointed_at: int = 0
    spells: tuple[AttemptSpan, ...] = ()
    setups_failed: int = 0
    moves: int = 0
    failures: Mapping[int, int] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether an attempt is running."""
        return self.attempt is not None and self.stopped is None

    @property
    def number(self) -> int:
        """The newest attempt's number, 0 before the first."""
        return 0 if self.attempt is None else self.attempt.attempt

    @property
    def share(self) -> float:
        """The part of the planned speed that the newest attempt has."""
        return 1.0 if self.attempt is None else float(self.attempt.share)

    def until(self, moment: int) -> int:
        """The work that was done by a moment of the newest attempt."""
        return self.base + round((moment - self.since) * self.share)

    def done(self, now: int) -> int:
        """Work that is not lost, if nothing is evicted now."""
        return self.until(now) if self.runs else self.safe

    def redone(self, now: int) -> tuple[ev.Stretch, ...]:
        """The time in which the newest attempt repeated work that had been lost before."""
        span = round(self.lost / self.share)
        return (ev.Stretch(self.since, min(self.since + span, now)),) if span else ()


@dataclass(frozen=True)
class RunState:
    """A run as its events tell it.

    `quotas` is the job's part of the quotas now; it has none while it `waits` for its turn. `open`
    are intents without an outcome, `unclear` are orders that were given up without an answer, and
    since when, until a list of the provider settles what they brought. `denied` are markets that a
    quota refused, spot (True) or on demand, while the run had never had machines of that kind, so
    that none of its own can be what fills the quota. `refused` are the last refusals of markets
    that have granted nothing since, by whether it was for spot machines, and `sold_out` are the
    orders that were refused because there were no machines. `refusal` is why the last order that
    brought nothing did not, and `unknown` are the codes, in no table, of orders since the last that
    brought machines. `paces` are moments and the clocks that were done by then, at most `MAX_PACES`
    of them, evenly thinned; `resumed_clock` is the one from which the run went on, None if the log
    does not say it. `left_plan` are the purchases that departed from the plan. `budget_set` is what
    the user made of the budget since the run began. `prices` are those that the log has, by market.
    `login` is the one that decisions wait for. `stood_seconds`: see `ClockStood`. `lost` says which
    of its rows a repair of the log has dropped.
    """

    run: str = ""
    began: ev.RunBegan | None = None
    started: int = 0
    quotas: str = ""
    waits: bool = False
    at: int = 0
    last_row: int = 0
    intents: int = 0
    open: Mapping[int, Intended] = field(default_factory=dict)
    orders: Mapping[int, ev.RentIntended] = field(default_factory=dict)
    ordered: Mapping[int, int] = field(default_factory=dict)
    unclear: Mapping[int, int] = field(default_factory=dict)
    allocations: Mapping[int, Allocation] = field(default_factory=dict)
    machines: Mapping[str, Held] = field(default_factory=dict)
    back_offs: Mapping[tuple[Market, bool], BackOff] = field(default_factory=dict)
    denied: frozenset[tuple[Market, bool]] = frozenset()
    refused: Mapping[tuple[Market, bool], RefusedOrder] = field(default_factory=dict)
    sold_out: frozenset[int] = frozenset()
    refusal: str = ""
    unknown: Mapping[int, str] = field(default_factory=dict)
    evictions: int = 0
    progress: ev.Progressed | None = None
    work: CommandWork = field(default_factory=CommandWork)
    paces: tuple[tuple[int, int], ...] = ()
    resumed_clock: int | None = None
    redone: tuple[ev.Stretch, ...] = ()
    sent: tuple[ev.Sent, ...] = ()
    planned: ev.Planned | None = None
    reason: str = ""
    left_plan: tuple[str, ...] = ()
    over_budget: Mapping[str, ev.BudgetExceeded] = field(default_factory=dict)
    budget_set: int | None = None
    login: ev.LoginAwaited | None = None
    stood_seconds: float = 0.0
    stopping: ev.StopRequested | None = None
    stopped: int | None = None
    ended: ev.RunEnded | None = None
    prices: Mapping[Market, ev.Priced] = field(default_factory=dict)
    corrections: tuple[ev.Corrected, ...] = ()
    lost: tuple[ev.RowsLost, ...] = ()

    @property
    def job(self) -> str:
        """The job of the run, which has begun."""
        assert self.began is not None
        return self.began.job

    def limit(self, stated: int | None) -> int | None:
        """The most that the run may cost, in nano-dollar-seconds: as it was set last, or as its job
        has `stated` it.
        """
        return stated if self.budget_set is None else self.budget_set

    @property
    def is_replayed(self) -> bool:
        """Whether the run is on a replayed market, where nothing is billed."""
        return self.began is not None and is_replayed(self.began.provider)

    @property
    def alive(self) -> tuple[Held, ...]:
        """Machines that are not known to be gone."""
        return tuple(machine for machine in self.machines.values() if machine.alive)

    def of(self, allocation: int) -> tuple[Held, ...]:
        """The machines of an allocation that are not gone and not being returned."""
        return tuple(m for m in self.alive if m.allocation == allocation and not m.returning)

    @property
    def open_orders(self) -> list[ev.RentIntended]:
        """The orders that may still bring machines; open renewals and returns do not matter."""
        asked = [intent for intent in self.open.values() if isinstance(intent, ev.RentIntended)]
        return [*asked, *(self.orders[intent] for intent in self.unclear)]

    def by_market(self, *, spot: bool, at: int | None = None) -> Counter[Market]:
        """Spot or on-demand machines by market that exist at a moment, with those of orders whose
        outcome is not known. Reserved ones count against no quota of theirs."""
        counts: Counter[Market] = Counter()
        for held in self.alive:
            if at is not None and not held.exists_at(at):
                continue
            allocation = self.allocations[held.allocation]
            if (allocation.bid is not None) is spot:
                counts[allocation.market] += 1

        for order in self.open_orders:
            if (order.bid is not None) is spot:
                known = sum(held.allocation == order.intent for held in self.machines.values())
                counts[order.market] += order.machines - known

        return Counter(
            {market: count for market, count in counts.items() if not market.reservation}
        )

    @property
    def has_answered(self) -> bool:
        """Whether the agent of any machine has ever answered."""
        return any(held.ran is not None for held in self.machines.values())

    def useless(self, since: int) -> int:
        """How many machines in a row, of orders after number `since`, were `Held.useless`."""
        in_a_row = 0
        for held in sorted(self.machines.values(), key=attrgetter("allocation")):
            if held.ran is not None:
                in_a_row = 0
            elif held.useless and held.allocation > since:
                in_a_row += 1
        return in_a_row

    def leaves_at(self, held: Held) -> int | None:
        """When a machine is to be returned, alone or with its allocation; None if that is not
        planned.
        """
        planned = (held.leaves_at, self.allocations[held.allocation].leaves_at)
        return min((at for at in planned if at is not None), default=None)
