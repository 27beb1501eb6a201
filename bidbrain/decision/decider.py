"""`Decider`: the one decision object of a job, for its plan, its run, a resumed run, and replays of
the past.

A decider keeps a strategy within the job's limits: the number of machines in total and per type, a
budget, and a deadline. On-demand machines are rented when the remaining slack is worth more than
they cost, or would run out (`deadline`). A gang (a command's nodes) is in one market, on spot or on
demand as a whole. A gang falls back to on-demand machines while spot keeps failing
(`on_demand_fallback`), returns to spot, and replaces lost machines. For other jobs, lost machines
are replaced where the strategy itself does not (`refilling`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, floor, inf, isfinite

from bidbrain.billing import BillingRule, End, Life, terms_of as cloud_terms, usd
from bidbrain.decision.limits import Allowance, MachineLimits, machines_leaving, with_capped_bids
from bidbrain.decision.on_demand import (
    TimeLeft,
    fallback_end,
    granted_on_demand,
    left_failing_spot,
    reason_to_leave_spot,
    refill,
    time_left,
)
from bidbrain.decision.reserved import ReservedOffer, ReservedTerms, reserved_part, without_reserved
from bidbrain.decision.roaming import GangNow, Roaming
from bidbrain.outbid.bid import BidTerms
from bidbrain.strategies.base import (
    LOOK_AGAIN,
    Decision,
    Holding,
    Offer,
    Overheads,
    Rent,
    Return,
    Situation,
    Strategy,
    gang_works,
)
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.names import ON_DEMAND, REGIONS
from bidbrain.strategies.regions import ZoneOutlook
from bidbrain.strategies.spells import SpotSpell
from bidbrain.strategies.standard import cheapest_spot
from pricing_data.market import Market
from pricing_data.units import HOUR, SECOND

_ROUNDING = 1e-9
_NO_CHECKPOINT = "stays where it is: without a checkpoint, moving would lose all work"
PRESSED = "close to the deadline: on-demand machines, which are never evicted"


PAID_MARGIN = 1.25
"""Where a machine costs its bid, the highest bid over the price of the moment: a bid at the price
is outbid soon, and what exceeds it is paid in every hour."""


@dataclass(frozen=True, slots=True)
class Decider:
    """A strategy within a job's limits, itself a strategy: decisions depend only on the situation.

    `deadline` is None if the job has none, or if its length is unknown. `worth` is the value of
    slack; without it a deadline only has its safety net. `look` is the longest time to the next
    decision while slack runs out, or on-demand machines stand in. `speed` is the part of the
    machines' speed that checkpoints leave. A gang with `roaming` may move between regions.
    `held_price` is what the disk and the address of one machine of a purchase cost, in nano-dollars
    per hour. A first lease is as long as `lease`, in markets whose machines boot slowly as
    `slow_leases`. With `caps_bids`, no bid is above `most_bid`, or above the on-demand price if
    that is None. In the markets of `bid_terms`, which are those of hosts, it is known how often a
    bid is outbid. A job with `usual_prices`, in nano-dollars per hour, that holds no machines waits
    for such prices, until it would have to turn to on-demand machines.
    """

    offers: tuple[Offer, ...]
    baseline: Rent
    reliable: Rent | None
    most_nu: float
    limits: MachineLimits
    overheads: Overheads
    deadline: int | None
    strategy: Strategy
    billing: BillingRule
    lease: int
    slow_leases: Mapping[Market, int] = field(default_factory=dict)
    worth: DeadlineStrategy | None = None
    look: int = LOOK_AGAIN
    speed: float = 1.0
    roaming: Roaming | None = None
    held_price: Callable[[Rent], int] | None = None
    caps_bids: bool = False
    most_bid: int | None = None
    reserved: tuple[ReservedOffer, ...] = ()
    bid_terms: Mapping[Market, BidTerms] = field(default_factory=dict)
    usual_prices: Mapping[Market, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the strategy, or of what decides in its place."""
        if self.roaming is None:
            return self.strategy.name
        return REGIONS

    @property
    def fallback(self) -> Rent:
        """The on-demand machines that the job may turn to: the baseline, or as much of it as quotas
        hold.
        """
        return self.limits.rentable(self.baseline)

    def decide(self, situation: Situation) -> Decision:
        """Decides what to rent and return now. Buys nothing whose first lease costs more than the
        budget has left.
        """
        if self.reserved:
            return self._with_reserved(situation)

        if self.limits.together:
            # A gang cannot span two markets: machines that leave soon count as gone.
            soon = situation.now + 2 * self.overheads.startup
            still_held = (
                holding
                for holding in situation.holdings
                if holding.leaves_at is None or holding.leaves_at > soon
            )
            staying = tuple(still_held)
            situation = replace(
                situation, holdings=staying, leaving=machines_leaving(situation, staying)
            )

        highest = partial(self._highest_bid, situation)
        if self.caps_bids:
            # Strategies compare only bids that may be made.
            most = self.most_bid
            offers = situation.offers
            if most is not None:
                offers = tuple(offer for offer in offers if situation.price(offer) <= most)
            situation = replace(
                situation, deadline=self.deadline, offers=offers, highest_bid=highest
            )
        elif situation.deadline != self.deadline:
            situation = replace(situation, deadline=self.deadline)

        decided = self._decided(situation)
        if self.caps_bids:
            decided = with_capped_bids(decided, highest, self.most_bid)

        if decided.rents:
            paying = situation
            saved = situation.saved
            if self.roaming is not None and saved is not None:
                target = decided.rents[0].offer.market
                moving = self.roaming.move_usd(saved.market, target, saved.gigabytes)
                paying = replace(situation, usd_left=situation.usd_left - moving)
            decided = self._allowance.allowed(decided, paying)

        if self.limits.together:
            return self._without_part(decided, situation)
        return decided

    def _highest_bid(self, situation: Situation, offer: Offer) -> int:
        """The most that may be bid: the job's highest bid or the on-demand price, and where bids
        are paid and nothing tells how often they are outbid, little more than the price of the
        moment."""
        most = offer.on_demand if self.most_bid is None else self.most_bid
        terms_of_cloud = cloud_terms(offer.market.cloud)
        if not terms_of_cloud.pays_bid or offer.market in self.bid_terms:
            return most
        return min(most, round(situation.price(offer) * PAID_MARGIN))

    def _with_reserved(self, situation: Situation) -> Decision:
        """Reserved machines first; the rest of the job is decided as a smaller job."""
        situation = replace(situation, deadline=self.deadline)
        fallback = self.fallback
        elsewhere = (
            []
            if self.strategy.name == ON_DEMAND
            else [situation.price(o) / o.nu for o in situation.offers]
        )

        listed_usd = self.baseline.offer.on_demand / self.baseline.offer.nu
        usd_elsewhere = min(elsewhere, default=listed_usd)
        full_nu = fallback.machines * fallback.offer.nu
        terms = ReservedTerms(
            self.limits, self.overheads, usd_elsewhere, full_nu, self.speed, self.committed_usd
        )

        part = reserved_part(self.reserved, situation, terms)
        if part.is_all:
            return Decision(part.actions, part.wake_at, part.reason)

        # The rest of the job is decided by a decider without what the reserved machines do.
        limits = self.limits
        if part.machines:
            least = max(self.limits.least - part.machines, 0)
            most = self.limits.most - part.machines
            limits = replace(self.limits, least=least, most=most)

        machines_of_part = part.nu / self.baseline.offer.nu
        whole_machines = floor(machines_of_part + _ROUNDING)
        full = max(self.baseline.machines - whole_machines, 1)
        rest_nu = self.most_nu - part.nu
        most_machines = max(limits.most, 1)
        rest_machines = min(full, most_machines)
        rest_baseline = replace(self.baseline, machines=rest_machines)
        beside = replace(self, reserved=(), most_nu=rest_nu, limits=limits, baseline=rest_baseline)

        others = without_reserved(situation, part)
        rest_situation = replace(others, baseline=beside.baseline)
        rest = beside.decide(rest_situation)
        wakes = (at for at in (part.wake_at, rest.wake_at) if at is not None)
        wake_at = min(wakes, default=None)
        reason = "; ".join(filter(None, (part.reason, rest.reason)))
        return replace(rest, actions=(*part.actions, *rest.actions), wake_at=wake_at, reason=reason)

    def _decided(self, situation: Situation) -> Decision:
        if self.deadline is None or not isfinite(situation.work_left):
            return self._unhurried(situation)

        # On-demand machines that a market grants now; the cheapest ones, if the gang may move.
        resort = self.baseline
        if self.roaming is not None:
            resort = self.roaming.last_resort(situation, self._gang(self.deadline))

        resort = granted_on_demand(
            resort, self.offers, self.most_nu, self.limits, situation.refused
        )
        decider = self if resort is self.baseline else replace(self, baseline=resort)
        if not decider.fallback.machines:
            return self._unhurried(situation)

        if self.usual_prices and not situation.holdings:
            offers = (
                offer
                for offer in situation.offers
                if situation.price(offer) <= self.usual_prices.get(offer.market, offer.on_demand)
            )
            waiting = decider._in_time(replace(situation, offers=tuple(offers)), self.deadline)
            if all(rent.spot for rent in waiting.rents):
                return waiting

        # Before it turns to on-demand machines, a job takes dear spot machines that cost less.
        return decider._in_time(situation, self.deadline)

    def outlooks(self, situation: Situation) -> tuple[ZoneOutlook, ...]:
        """How a gang that may move between regions rates each market, the best first; empty for
        other jobs.
        """
        if self.roaming is None or self.deadline is None:
            return ()
        gang = self._gang(self.deadline)
        seen = self.roaming.seen(situation, gang)
        return tuple(self.roaming.strategy.outlooks(seen))

    def later(self, span: int) -> "Decider":
        """The decider of the same job, if it begins later, or earlier."""
        deadline = None
        if self.deadline is not None:
            deadline = self.deadline + span
        roaming = None
        if self.roaming is not None:
            roaming = self.roaming.later(span)
        reserved = tuple(replace(each, leave=each.leave + span) for each in self.reserved)
        return replace(self, deadline=deadline, roaming=roaming, reserved=reserved)

    def committed_usd(self, rent: Rent) -> float:
        """The most that one machine of a purchase can cost until the end of its first lease."""
        lease = self.slow_leases.get(rent.offer.market, self.lease)
        bill = self.billing.bill(Life(0, lease, End.LEFT), rent.highest_price)
        kept = 0
        if self.held_price is not None:
            kept = self.held_price(rent) * -(-lease // SECOND)
        return usd(bill.amount + kept)

    def _unhurried(self, situation: Situation) -> Decision:
        """Decides as for a job without a deadline."""
        if self.limits.together and (decided := self._gang_fallback(situation)) is not None:
            return decided
        if self._would_start_again(situation):
            return Decision((), situation.now + self.look, _NO_CHECKPOINT)

        wanted = self.strategy.decide(situation)
        if (
            not situation.offers
            and not situation.holdings
            and not wanted.actions
            and self.fallback.machines
        ):
            return self._on_demand(situation, "no spot market is available: on demand until one is")
        if wanted.actions:
            return wanted

        if self.limits.together:
            return self._completing(situation) or wanted
        return refill(self.strategy, situation) or wanted

    # -- deadlines ---------------------------------------------------------------------------------

    def _in_time(self, situation: Situation, deadline: int) -> Decision:
        """Decides for a job with a deadline: fills up on demand, leaves the job to the strategy, or
        waits.
        """
        fallback = self.fallback
        full = fallback.machines * fallback.offer.nu
        running = self._running(situation)
        left = time_left(
            situation, deadline, full, self.overheads, running, self.look, speed=self.speed
        )

        # Only what is missing has to start; the rest keeps working meanwhile.
        startup = self.overheads.startup * left.missing
        if fallback.machines < self.baseline.machines and left.slack < startup:
            # The on-demand machines that quotas allow would be late: only more spot machines help.
            return self._as_fast_as_possible(situation, left, PRESSED)

        # One more eviction could cost the deadline.
        endangered = left.on_spot > 0 and left.slack < left.leave
        if endangered and (moved := self._leave_spot(situation, left)) is not None:
            return moved
        if left.pressed(self.look):
            return self._on_demand_if_granted(situation, left, PRESSED)
        if self.roaming is not None:
            return self._roam(self.roaming, situation, deadline, left)

        record = situation.record
        why = ""
        if self.limits.together:
            until = fallback_end(record) if left_failing_spot(record) else None
            why = self._stays_on_demand(situation, until)

        if why := why or self._slack_is_scarce(situation, left):
            return self._on_demand_if_granted(situation, left, why)

        return self._patient(situation, left)

    def _on_demand_if_granted(self, situation: Situation, left: TimeLeft, why: str) -> Decision:
        """Rents on-demand machines for what is missing, or spot machines while all markets refuse
        on-demand ones.
        """
        refused = (self.baseline.offer.market, False) in situation.refused
        if refused and not situation.on_demand:
            return self._as_fast_as_possible(situation, left, why)
        return self._filled(situation, left, why)

    def _as_fast_as_possible(self, situation: Situation, left: TimeLeft, why: str) -> Decision:
        """Rents spot machines as the strategy wants them, and on-demand machines while there are
        none.
        """
        wanted = self._patient(situation, left)
        if situation.on_spot or wanted.rents:
            return wanted
        return self._filled(situation, left, why)

    def _roam(
        self, roaming: Roaming, situation: Situation, deadline: int, left: TimeLeft
    ) -> Decision:
        """Moves the gang to where it is cheapest, unless the move would lose its work."""
        if self._would_start_again(situation):
            return Decision((), situation.now + self.look, _NO_CHECKPOINT)

        wanted = roaming.decide(situation, self._gang(deadline))
        if self.limits.shrinks and not wanted.rents:
            gone = {action.allocation for action in wanted.returns}
            remaining = (
                holding for holding in situation.holdings if holding.allocation not in gone
            )
            kept = tuple(remaining)
            short = self._completing(replace(situation, holdings=kept))
            wanted = (
                wanted
                if short is None
                else replace(short, actions=(*wanted.actions, *short.actions))
            )

        changing = bool(wanted.actions) or left.missing > _ROUNDING
        return replace(wanted, wake_at=self._next_look(situation, left, wanted, changing=changing))

    def _gang(self, deadline: int) -> GangNow:
        # What a loss costs in time is part of each start.
        delay = self.overheads.startup + self.overheads.resize + self.overheads.eviction
        nodes = self.limits.most
        limits = self.limits.on_demand
        closed = frozenset(market for market, most in limits.items() if most < nodes)
        return GangNow(
            nodes, self.limits.least, self.baseline, self.speed, deadline, delay, self.look, closed
        )

    def _running(self, situation: Situation) -> list[Holding]:
        """The machines that do the work and stay; none if they are too few for a gang."""
        soon = situation.now + self.overheads.startup + self.look
        staying = [
            holding
            for holding in situation.holdings
            if holding.leaves_at is None or holding.leaves_at > soon
        ]
        if gang_works(staying, self.limits.nodes):
            return staying
        return []

    def _slack_is_scarce(self, situation: Situation, left: TimeLeft) -> str:
        """Why on-demand machines are worth their price; empty if spot machines, or waiting, cost
        less.
        """
        if self.strategy.name == ON_DEMAND:
            return "on demand, as the job says"

        on_demand = bool(situation.on_demand)
        if self.worth is None or (left.missing <= _ROUNDING and not on_demand):
            return ""

        up = bool(situation.offers)
        spell = None
        if situation.spell is not None:
            spell = situation.spell()
        if spell is None:
            spell = SpotSpell.begun(up=up)
        elif spell.up is not up:
            spell = replace(SpotSpell.begun(up=up), steps=spell.steps)

        # The plan counts time on demand: `worth` was built with the length of the job on on-demand
        # machines.
        full_rate = self.fallback.machines * self.fallback.offer.nu * self.speed
        time = situation.work_left / full_rate
        least = self.worth.least_slack(time, spell, on_demand=on_demand)
        if left.slack >= least:
            return ""

        return (
            f"{left.slack / HOUR:.2f} h of slack: below {least / HOUR:.2f} h, on-demand is cheaper"
        )

    def _patient(self, situation: Situation, left: TimeLeft) -> Decision:
        """Rents spot machines as the strategy wants them, and keeps on-demand machines only until
        then.
        """
        on_demand = situation.on_demand
        spot = situation.on_spot
        wanted = self._unhurried(replace(situation, holdings=spot) if on_demand else situation)
        actions = tuple(
            action for action in wanted.actions if isinstance(action, Return) or action.spot
        )
        changing = bool(on_demand or wanted.returns or not spot)
        wake_at = self._next_look(situation, left, wanted, changing=changing)
        rents = [rent for rent in wanted.rents if rent.spot]
        waiting = f"waits for spot, with {left.slack / HOUR:.2f} h of slack"

        if not on_demand:
            waits = not rents and not spot
            return Decision(actions, wake_at, waiting if waits else wanted.reason)

        if situation.offers and not rents and left.missing <= _ROUNDING:
            return Decision((), wake_at, f"stays on demand: {wanted.reason}")

        # A gang's current machines run until the new ones have started.
        at = None
        if rents and self.limits.together:
            at = situation.now + self.overheads.startup
        # One machine is granted or not, and the market may have none.
        replaced = at is not None or sum(rent.machines for rent in rents) == 1
        back = tuple(Return(holding.allocation, at, replaced=replaced) for holding in on_demand)
        why = f"back to spot: {wanted.reason}" if rents else waiting
        return Decision((*back, *actions), wake_at, why)

    def _next_look(
        self, situation: Situation, left: TimeLeft, wanted: Decision, *, changing: bool
    ) -> int | None:
        """When to decide again: when the strategy wants to, or earlier if slack could run short by
        then.

        A minute costs at most a minute of slack, through missing machines or work at risk until a
        checkpoint. Half of the spare slack is kept.
        """
        calm = left.missing <= _ROUNDING and not self.limits.together
        if calm and not changing:
            return wanted.wake_at
        spare = 0
        if not changing:
            spare = floor(left.slack - left.enter - left.evict) // 2
        soon = situation.now + max(self.look, spare)
        return min(soon, wanted.wake_at or soon)

    def _leave_spot(self, situation: Situation, left: TimeLeft) -> Decision | None:
        """Moves everything to on-demand machines; None if that is impossible, or would itself cost
        the deadline.
        """
        spot = situation.on_spot
        kept = situation.on_demand
        offer = self.baseline.offer
        rate = self.fallback.machines * self.baseline.offer.nu
        lacking_rate = rate - sum(holding.nu for holding in kept)
        lacking_machines = lacking_rate / offer.nu - _ROUNDING
        wanted = Rent(offer, ceil(lacking_machines), None)
        if wanted.machines <= 0:
            return None

        # Where more machines are allowed, the current ones run until the new ones have started.
        both = (
            self.limits.together
            or self._allowance.room(situation, situation.holdings).free(wanted) >= wanted.machines
        )
        at = None
        if both:
            at = situation.now + self.overheads.startup
        loses = left.slack < left.move and not (both and situation.record.resumes)
        if loses or self._allowance.room(situation, kept).free(wanted) < wanted.machines:
            return None

        # Machines that were to leave later would take the room until then.
        back = (
            Return(holding.allocation, at, replaced=both)
            for holding in spot
            if at is None or holding.leaves_at is None
        )

        return Decision((*back, wanted), situation.now + self.look, PRESSED)

    def _filled(self, situation: Situation, left: TimeLeft, why: str) -> Decision:
        """Rents on-demand machines for what is missing; an incomplete gang restarts on demand as a
        whole.
        """
        soon = situation.now + self.look
        if left.missing <= _ROUNDING:
            return Decision((), soon, why)

        offer = self.baseline.offer
        running = self._running(situation)
        missing = left.missing * self.fallback.machines * offer.nu
        machines = missing / offer.nu - _ROUNDING
        wanted = Rent(offer, ceil(machines), None)
        if self.limits.together and not running:
            back = tuple(Return(holding.allocation) for holding in situation.holdings)
            return Decision((*back, wanted), soon, why)

        slower = any(holding.rent.spot and holding.rent.offer.nu < offer.nu for holding in running)
        if self.limits.shrinks and any(holding.rent.spot for holding in running):
            # A gang is on spot or on demand as a whole, so one that lacks nodes on spot moves with
            # all of them.
            whole = self._leave_spot(situation, left)
            if whole is None:
                return Decision((), soon, why)
            return replace(whole, reason=why)

        room = self._allowance.room(situation, situation.holdings)
        full = room.free(wanted) < wanted.machines
        moved = None
        if full and slower and left.pressed(self.look):
            moved = self._leave_spot(situation, left)

        return moved or Decision((wanted,), soon, why)

    def _would_start_again(self, situation: Situation) -> bool:
        """Whether moving a running gang would lose everything it has done."""
        return (
            self.limits.together and not situation.record.resumes and bool(self._running(situation))
        )

    # -- gangs -------------------------------------------------------------------------------------

    def _stays_on_demand(self, situation: Situation, until: int | None) -> str:
        """Why a gang does not use spot now; empty if nothing speaks against it. One that runs on
        demand stays `until` then."""
        record = situation.record
        if not situation.on_demand:
            listed = self.baseline.offer.on_demand / self.baseline.offer.nu
            spot = min(
                (situation.price(offer) / offer.nu for offer in situation.offers), default=inf
            )
            why = reason_to_leave_spot(record, spot / listed, situation.now)
            if why and not situation.holdings:
                return f"{why}: on demand"
            return ""

        if not record.resumes:
            return _NO_CHECKPOINT

        if until is not None and situation.now < until:
            return "stays on demand until spot markets are calmer"
        return ""

    def _gang_fallback(self, situation: Situation) -> Decision | None:
        """The move to on-demand machines, or back; None if the strategy decides."""
        why = self._stays_on_demand(situation, fallback_end(situation.record))
        if not situation.on_demand:
            if why and self.fallback.machines:
                return self._on_demand(situation, why)
            return None
        if why:
            return self._on_demand(situation, why)

        wanted = self.strategy.decide(replace(situation, holdings=()))
        back = [rent for rent in wanted.rents if rent.spot]
        if not back:
            return self._completing(situation) or Decision(
                (), wanted.wake_at, f"stays on demand: {wanted.reason}"
            )

        # The current machines run until the new ones have started.
        at = situation.now + self.overheads.startup
        returns = (Return(holding.allocation, at, replaced=True) for holding in situation.on_demand)
        return Decision((*returns, back[0]), wanted.wake_at, f"back to spot: {wanted.reason}")

    def _without_part(self, decided: Decision, situation: Situation) -> Decision:
        """The decision, which also returns the granted part of an order, unless the rest is ordered
        now.

        A gang that runs on demand has no use for a few spot nodes, and their evictions would
        disturb it.
        """
        part = situation.on_spot
        if decided.rents or not part or not gang_works(situation.on_demand, self.limits.nodes):
            return decided

        returned = {action.allocation for action in decided.returns}
        if returned & {holding.allocation for holding in situation.on_demand}:
            return decided

        returns = (
            Return(holding.allocation) for holding in part if holding.allocation not in returned
        )
        back = tuple(returns)
        return replace(decided, actions=(*decided.actions, *back))

    def _completing(self, situation: Situation) -> Decision | None:
        """Replacements for the lost machines of a gang, from the same market while its price is at
        most the bid.
        """
        held = sum(holding.rent.machines for holding in situation.holdings)
        if not 0 < held < self.limits.most:
            return None

        short = self.limits.most - held
        like = situation.holdings[0].rent
        sells = situation.sells(like)
        if not sells and held >= self.limits.least:
            why = f"continues with {held} of {self.limits.most} nodes: their market has no more now"
            return Decision((), situation.now + LOOK_AGAIN, why)

        if not sells:
            cheapest = cheapest_spot(situation)
            offer = self.baseline.offer if cheapest is None else cheapest
            like = Rent(offer, short, None if cheapest is None else offer.on_demand)

        why = f"{held} of {self.limits.most} nodes are running"
        next_look = situation.now + LOOK_AGAIN
        return Decision((replace(like, machines=short),), next_look, why)

    # -- limits ------------------------------------------------------------------------------------

    def _on_demand(self, situation: Situation, why: str) -> Decision:
        """The machines of the baseline that still fit."""
        offer = self.baseline.offer
        rate = sum(holding.nu for holding in situation.holdings)
        room = self.most_nu - rate
        room_machines = room / offer.nu + _ROUNDING
        machines = min(floor(room_machines), self.fallback.machines)
        rents = (Rent(offer, machines, None),) if machines > 0 else ()
        return Decision(rents, situation.now + self.look, why)

    @property
    def _allowance(self) -> Allowance:
        return Allowance(self.limits, self.most_nu, self.committed_usd)
