"""`regions` in the replay: the `Decider` of plans and runs decides from what the field shows, and orders what it wants.

A zone that has refused is not asked again in the same step, as a market that has refused rests in a run.
"""

from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.decision.roaming import Roaming, regions_of
from bidbrain.lab.regions.replay import Field, Whereabouts
from bidbrain.strategies.base import Decision, Holding, Look, Offer, Rent, Return, SavedState, Situation
from bidbrain.strategies.regions_knowledge import Known
from bidbrain.strategies.standard import AlwaysOnDemand
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR

_WHOLE = 1.0
"""The checkpoint counts as one GB, whose price of moving is that of the whole checkpoint."""


class DecidedRegions:
    """One job under `regions`."""

    bills_last_step = False

    def __init__(self) -> None:
        self._decider: Decider | None = None
        self._looks = list[Look]()
        self._held: Whereabouts | None = None
        self._wake_at = 0

    def step(self, field: Field) -> None:
        """Decides, if the decider wants to by now or machines were lost, until an order is granted or none is made."""
        self._decider = self._decider or _decider_of(field)
        now = field.now * field.gap
        if self._held is not None and self._held.spot:
            self._saw(now, self._held.zone, up=field.machine is not None)
        if field.machine is not None and field.machine == self._held and now < self._wake_at:
            return
        refused = set[int]()
        while True:
            decision = self._decider.decide(self._situation(field, self._decider, refused))
            zone = self._follow(field, self._decider, decision)
            if zone is None:
                break
            refused.add(zone)
        self._held = field.machine
        self._wake_at = now if decision.wake_at is None else decision.wake_at

    def _follow(self, field: Field, decider: Decider, decision: Decision) -> int | None:
        """Does what was decided; the zone that refused, if one did."""
        for order in decision.actions:
            if not isinstance(order, Rent):
                continue
            zone = decider.offers.index(order.offer)
            if not order.spot:
                field.start_on_demand(zone)
                return None
            started = field.start_spot(zone)
            self._saw(field.now * field.gap, zone, up=started)
            return None if started else zone
        if any(isinstance(action, Return) for action in decision.actions):
            field.stop()
        return None

    def _saw(self, now: int, zone: int, *, up: bool) -> None:
        assert self._decider is not None
        self._looks.append(Look(now, self._decider.offers[zone].market, up))

    def _situation(self, field: Field, decider: Decider, refused: set[int]) -> Situation:
        now, job, held, offers = field.now * field.gap, field.job, field.machine, decider.offers
        holdings: tuple[Holding, ...] = ()
        if held is not None:
            offer, machines = offers[held.zone], round(field.share * job.machines)
            rent = Rent(offer, machines, offer.on_demand if held.spot else None)
            holdings = (Holding(0, rent, now, now + field.delay_left),)
        prices = {offer: round(usd * NANOS_PER_DOLLAR) for offer, usd in zip(offers, field.spot.tolist(), strict=True)}
        return Situation(
            now=now,
            offers=tuple(offer for zone, offer in enumerate(offers) if zone not in refused),
            price=lambda offer: prices[offer],
            holdings=holdings,
            baseline=decider.baseline,
            most_nu=decider.most_nu,
            work_left=float(field.work_left) * job.machines,
            looks=lambda: tuple(self._looks),
            saved=None if field.home is None else SavedState(offers[field.home].market, _WHOLE),
            deadline=decider.deadline,
        )


def _decider_of(field: Field) -> Decider:
    job = field.job
    offers = tuple(
        Offer(Market("local", region, zone, "machine"), 1.0, round(usd * NANOS_PER_DOLLAR))
        for zone, region, usd in zip(field.zones, field.regions, field.on_demand.tolist(), strict=True)
    )
    cheapest = min(offers, key=lambda offer: offer.on_demand)
    return Decider(
        offers=offers,
        baseline=Rent(cheapest, job.machines, None),
        reliable=None,
        most_nu=float(job.machines),
        limits=MachineLimits(job.at_least, job.machines, {}, together=True),
        overheads=Overheads(startup=field.longest_delay, eviction=0, resize=0),
        deadline=field.steps * field.gap,
        strategy=AlwaysOnDemand(),
        billing=billing_rule("per-second"),
        lease=field.gap,
        look=field.gap,
        roaming=Roaming(offers, field.moving, Known.nothing(regions_of(offers)), _WHOLE),
    )
