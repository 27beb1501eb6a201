"""The reservations that a job file names, as offers of a plan, and why a plan does not use one. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bidbrain.decision.reserved import ReservedOffer
from bidbrain.strategies.base import Offer
from pricing_data.units import format_time, format_usd
from spotctl.files.job.reservations import Reservation
from spotctl.files.job.spec import JobSpec, Objective
from spotctl.planning.allocation import AllocatedJob
from spotctl.planning.machine_options import MachineOption
from spotctl.planning.offers import MachineKind
from spotctl.planning.work import TypeSpeed

_FASTEST = (Objective.MAX_THROUGHPUT, Objective.MAKESPAN_WITHIN_BUDGET)


def current(reservations: Iterable[Reservation], at: int) -> tuple[Reservation, ...]:
    """The reservations that have not ended."""
    return tuple(named for named in reservations if named.leave > at)


def place_of(spec: JobSpec, at: int) -> tuple[str, str] | None:
    """The cloud and region that a job's reservations keep it in, because all its machines are in one."""
    return next(((named.market.cloud, named.market.region) for named in current(spec.resources.reservations, at)), None)


def is_kind_of(reservation: Reservation, kind: MachineKind) -> bool:
    """Whether a reservation has machines of a kind."""
    market = reservation.market
    return (market.cloud, market.region, market.instance_type) == (kind.cloud, kind.region, kind.type)


def reserved_offers(allocated: AllocatedJob, least_nu: float, at: int) -> tuple[ReservedOffer, ...]:
    """The reservations that a job can use. One that is to be as fast as possible takes no machines that do less work
    per hour than `least_nu`."""
    spec, rates = allocated.job.spec, allocated.rates
    whole = allocated.demand.gang and not allocated.saves
    return tuple(
        ReservedOffer(Offer(named.market, rates[named.type].nu, named.price), named.machines, named.leave, whole)
        for named in current(allocated.job.reservations, at)
        if not _why_never(named, spec, rates, least_nu)
    )


def _why_never(named: Reservation, spec: JobSpec, rates: Mapping[str, TypeSpeed], least_nu: float) -> str:
    if named.type not in rates:
        return (
            f"the job cannot use {named.type} there, or no spot price of it is known, with which plans compare"
            " (spotctl prices fetch)"
        )
    if spec.objective in _FASTEST and rates[named.type].nu < least_nu:
        return f"slower than the machines that the objective {spec.objective} asks for"
    return ""


def unused(
    allocated: AllocatedJob, offers: Sequence[ReservedOffer], least_nu: float, elsewhere: float, at: int
) -> Iterator[tuple[Reservation, str]]:
    """The reservations that a plan does not begin with, and the reason. `elsewhere` are the nano-dollars that a unit of
    work costs on other machines."""
    spec, usable = allocated.job.spec, {each.offer.market: each for each in offers}
    parts = {named.market: named for named in allocated.job.reservations}
    for stated in spec.resources.reservations:
        named, each = parts.get(stated.market, stated), usable.get(stated.market)
        if named.leave <= at:
            yield named, f"its machines are returned at {format_time(named.leave)}, which has passed"
        elif named.market not in parts:
            yield named, "its machines are planned for other jobs that name it"
        elif each is None:
            yield named, _why_never(named, spec, allocated.rates, least_nu)
        elif allocated.demand.gang and named.machines < allocated.demand.least:
            yield named, f"has {named.machines} machines, and the job needs {allocated.demand.least} in one market"
        elif each.per_work > elsewhere:
            price, other = format_usd(named.price), format_usd(round(elsewhere * each.offer.nu))
            yield named, f"costs ${price} an hour, and as much work costs ${other} elsewhere"
        else:
            yield named, _no_room(each)


def _no_room(each: ReservedOffer) -> str:
    if each.whole:
        return "ends before the job is done, and the command has no checkpoint with which it could go on elsewhere"
    return "its end, the deadline or the budget leave no room for it"


def best_first(
    options: Iterable[MachineOption], kinds: Sequence[MachineKind], offers: Sequence[ReservedOffer], cheapest: float
) -> list[MachineOption]:
    """The options, those first that are measured in machines of a reservation that costs no more per unit of work."""
    types = {each.offer.market.instance_type for each in offers if each.per_work <= cheapest}
    return sorted(options, key=lambda option: kinds[option.home].type not in types)
