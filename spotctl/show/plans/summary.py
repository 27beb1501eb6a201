"""A plan in a line each for machines, cost, time, evictions, on demand, and the next best
choice."""

from collections.abc import Iterator
from math import ceil, isfinite
from operator import attrgetter

from rich.filesize import decimal

from bidbrain.forecast.values import Spread
from bidbrain.strategies.base import Rent
from bidbrain.strategies.known_spells import UNSEEN
from bidbrain.strategies.names import ON_DEMAND
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, format_time, moment, usd_text
from spotctl.agent.container.named_packages import NamedPackages
from spotctl.clouds.boot import stated_time
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import AUTO
from spotctl.files.job.values import CLOSE
from spotctl.log.boots import MAX_SILENT_MACHINES
from spotctl.planning.explain import launch_moment
from spotctl.planning.forecast import finish_by, forecast_of, turns_to_spot
from spotctl.planning.offers import is_sold_on_demand, said_of_types
from spotctl.planning.values import GB, JobPlan
from spotctl.show.phrases import (
    EVIDENCE,
    chance,
    hours_text,
    machines_text,
    span_words,
    terms_text,
    until_text,
)

_HIGHEST_STATED = 0.98
_LONG_DAYS = 30
"""Work that takes longer by the job file's throughputs may be in other units."""
_LEAST_TRAFFIC = 0.01
"""Traffic that comes to less of the bill goes unsaid."""
_HARDLY_KNOWN = 0.1
"""From this width on, the odds of a limit are stated as a range."""


def summary(plan: JobPlan) -> Iterator[tuple[str, str]]:
    """The lines of a plan by name."""
    yield "machines", _machines(plan)
    yield "cost", _cost(plan)
    yield "time", _time(plan)
    if (work := _work(plan)) is not None:
        yield "work", work
    yield "evictions", _evictions(plan)
    besides = {"traffic": _traffic, "network": _network, "packages": _environment}
    yield from ((name, text) for name, say in besides.items() if (text := say(plan)) is not None)

    other, assumed = plan.cost.on_demand, plan.demand.work.assumed
    forecast, strategy = forecast_of(plan), plan.job.spec.strategy
    cost = forecast.usd_per_hour if assumed else forecast.usd
    ratio = cost.median / other.usd
    comparison = _saving(plan, cost)
    if ratio > 1:
        more = f"{ratio - 1:.0%}"
        comparison = "nothing saved" if more == "0%" else f"the plan is {more} more expensive"
        if strategy not in (AUTO, ON_DEMAND):
            comparison += f"; strategy: {ON_DEMAND} would cost less than {strategy}"

    market, list_date = other.rent.offer.market, ""
    for price in plan.cost.price_dates:
        if not price.spot and price.market == market and not market.is_synthetic:
            day = format_time(price.as_of)[:10]
            list_date = f" by the list of {day}"
            break

    span = "per hour" if assumed else f"in {hours_text(other.hours)}"
    machines = f"{other.rent.machines:,} x {market.instance_type}{list_date}"
    on_demand = f"{usd_text(other.usd)} {span} on {machines}: {comparison}"
    if not is_sold_on_demand(market):
        on_demand += f"; {market.instance_type} is not sold at that price, only as spot or reserved"
    yield "on demand", on_demand

    yield "next best", _next_best(plan)
    if (lost := _if_none_boots(plan)) is not None:
        yield "dead boots", lost
    if (turns := _turns(plan)) is not None:
        yield "turns", turns


def _machines(plan: JobPlan) -> str:
    """`6 x c4.2xlarge (sim-east-b), bid $0.0524/h; 1 x m3.medium (sim-east-b) on demand,
    reliable`."""
    texts, markets = list[str](), list[Market]()
    for choice in plan.cost.choice:
        texts.append(_rented(choice.rent))
        markets.append(choice.rent.offer.market)

    reliable = plan.decider.reliable
    if reliable is not None and reliable.machines:
        texts.append(f"{_rented(reliable)}, reliable")

    if turns_to_spot(plan):
        if plan.decision.reason.startswith("waits"):
            texts[0] = f"at the latest {texts[0]}"
        texts.append("spot machines as soon as they are worth it")
    text = "; ".join(texts) or "none yet"
    if markets and all(market.is_synthetic for market in markets):
        return f"{text} (synthetic market)"
    return text


def _rented(rent: Rent) -> str:
    market = rent.offer.market
    return f"{machines_text(f'{rent.machines:,}', market)}{terms_text(market, rent.bid, rent.offer.on_demand)}"


def _traffic(plan: JobPlan) -> str | None:
    """The price of the bytes of checkpoints, unless it is hardly anything."""
    usd = plan.cost.traffic_usd
    if usd < _LEAST_TRAFFIC * forecast_of(plan).usd.median or not usd:
        return None
    saves = f"checkpoints of {plan.demand.saved_gb:g} GB, at the usual price of its hosts"
    return f"{usd_text(usd)} on top, for {saves}"


def _network(plan: JobPlan) -> str | None:
    """Over what several machines talk, where they could be faster."""
    if plan.job.spec.resources.machines.least < 2:
        return None
    for choice in plan.cost.choice:
        type_ = choice.rent.offer.market.instance_type
        name, types = said_of_types(choice.rent.offer.market, "FABRIC") or ("", None)
        if types is not None and types.fullmatch(type_):
            slow = f"{type_} has {name}, which is not set up"
            return f"the machines talk over TCP: {slow}, so that exchanging gradients takes longer"
    return None


def _environment(plan: JobPlan) -> str | None:
    """Which packages the job's programs have, and who builds them."""
    named = plan.job.spec.environment
    if not isinstance(named, NamedPackages):
        return None
    if plan.job.spec.is_local:
        return f"{named.file}, in an environment that is built on this computer once"
    if not named.file:
        return f"python {named.python}".rstrip() + " of its own on each machine, with pip and uv"
    kept = f", and kept at {named.store} for the next" if named.store else ""
    return f"{named.file}, built on each machine{kept}"


def _cost(plan: JobPlan) -> str:
    """The median cost with P10 and P90, and whether the budget is likely to be enough. Where
    nothing is known of spot machines, the median would be a guess: the cost if they hold, and that
    on demand."""
    forecast, budget = forecast_of(plan), plan.demand.budget_usd
    known = not plan.demand.work.assumed
    spread = forecast.usd if known else forecast.usd_per_hour
    low, high = spread.likely
    unit = "" if known else " per hour"
    text = f"{usd_text(spread.median)}{unit} ({usd_text(low)} to {usd_text(high)})"

    if _is_guess(plan):
        most = max(high, plan.cost.fallback.usd)
        most_is = "on demand" if plan.decider.fallback.machines else "if it hardly does"
        text = f"between {usd_text(low)} if spot holds and {usd_text(most)} {most_is}"
    if budget is None:
        return text

    text += f"; the budget of {usd_text(budget)} is"
    if known:
        left = budget - plan.cost.traffic_usd
        kept = _probability(forecast.budget_kept(left), forecast.usd.at_most_between(left))
        return f"{text} {kept} likely to be enough"
    lasts = hours_text(budget / spread.median)
    return f"{text} enough for {lasts}"


def _is_guess(plan: JobPlan) -> bool:
    """Whether nothing is known of the evictions and the capacity of a plan's spot machines."""
    spot = [choice for choice in plan.cost.choice if choice.rent.bid is not None]
    spells = plan.fleet.market_history.spells
    seen = [spells.get(choice.rent.offer.market, UNSEEN).up is not None for choice in spot]
    is_prior = any(choice.evidence == "prior" for choice in spot)
    return is_prior and not any(seen) and not plan.demand.work.assumed


def _time(plan: JobPlan) -> str:
    """The median duration with P10 and P90, and whether the deadline is likely to be met."""
    forecast, deadline, assumed = forecast_of(plan), plan.job.deadline, plan.demand.work.assumed
    text = "unknown: set `hours:`, or pass --hours"
    if not assumed:
        text = hours_text(forecast.hours.median)
        low, high = map(hours_text, forecast.hours.likely)
        number, unit = low.split()
        if not low == high == text:
            least = number if high.endswith(unit) else low
            text += f" ({least} to {high})"
        text += f", finished by {moment(finish_by(plan))}"

    if deadline is None:
        return text

    if plan.job.spec.deadline is None:
        when = "" if turns_to_spot(plan) else "after an eviction, "
        wait = f"{when}waits while spot machines are dear, but not beyond {moment(deadline)}"
        other = "" if plan.demand.value_of_time_usd else "value_of_time, or "
        return f"{text}; {wait}: set {other}a deadline"

    text += f"; the deadline {moment(deadline)}"
    if assumed:
        return f"{text} cannot be checked, because the job length is unknown"

    left = (deadline - plan.at) / HOUR
    met = _probability(forecast.deadline_met(left), forecast.hours.at_most_between(left))
    slack = (deadline - finish_by(plan)) / HOUR
    spare = "; on-demand machines take over if time runs short"
    if slack >= 0:
        spare = f", {hours_text(slack)} to spare"
    return f"{text} is {met} likely to be met{spare}"


def _work(plan: JobPlan) -> str | None:
    """Whose hours the job's hours are, and how fast the machines of the plan are next to these;
    None if they are all alike, or the work is not in hours.
    """
    demand, spec = plan.demand, plan.job.spec
    days = forecast_of(plan).hours.median / 24
    if spec.throughputs and demand.work.units is not None and days > _LONG_DAYS:
        per_second = "if `throughputs` are per second, multiply them by 3,600"
        return f"{demand.work.source} take {days:,.0f} days by `throughputs` per hour; {per_second}"
    if demand.work.hours is None or demand.work.assumed or spec.hours is None:
        return None

    reference = demand.rates[demand.reference]
    rents = [choice.rent for choice in plan.cost.choice]
    faster = dict[str, str]()
    for rent in (*rents, plan.cost.on_demand.rent):
        name = rent.offer.market.instance_type
        ratio = demand.rates[name].nu / reference.nu
        if ratio != 1:
            faster[name] = f"{name} does {ratio:.3g} times as much ({demand.rates[name].source})"
    if not faster:
        return None

    whose = f"{hours_text(demand.work.hours)} on {demand.reference}"
    if spec.hours.on is None:
        whose += ", as `hours` names no other type"
    return "; ".join([whose, *faster.values()])


def _probability(share: float, between: tuple[float, float]) -> str:
    """No probability is stated as certain; where windows of the past are few, it is one of many."""
    low, high = between
    if high - low > _HARDLY_KNOWN:
        return f"{low:.0%} to {min(high, _HIGHEST_STATED):.0%}"
    if share > _HIGHEST_STATED:
        return f"over {_HIGHEST_STATED:.0%}"
    if share < 1 - _HIGHEST_STATED:
        return f"under {1 - _HIGHEST_STATED:.0%}"
    return f"{share:.0%}"


def _evictions(plan: JobPlan) -> str:
    """How likely an eviction is, and what it does to the job."""
    spot = [choice for choice in plan.cost.choice if choice.rent.bid is not None]
    if not spot:
        later = forecast_of(plan).on_spot
        first = "none on the machines of this plan"
        prices = plan.fleet.prices
        cheaper = any(prices[offer.market] < offer.on_demand for offer in plan.decider.offers)
        if cheaper and not later and _loses_all(plan) and plan.job.spec.strategy == AUTO:
            return f"{first}; on spot machines, one would lose all work, as the job names no checkpoint"
        return (
            f"{first} that come first; {later:.0%} of plays rent spot machines" if later else first
        )

    odds = f"{chance(max(choice.beta.probability for choice in spot))} per hour"
    if any(choice.evidence == "prior" for choice in spot):
        odds = EVIDENCE["prior"]

    interval = plan.decision.checkpoints
    if not isinstance(plan.job.spec.program, Command):
        effect = "training continues on the remaining machines and loses no update"
        if plan.decider.reliable is None:
            effect += "; if all are lost at once, the clocks since the last checkpoint are repeated"
    elif interval is None:
        effect = "each starts the command from scratch"
    else:
        every = span_words(interval.every)
        gb = plan.demand.saved_gb
        size = "" if gb is None else f" ({decimal(round(gb * GB))})"
        effect = f"the command restarts from its newest checkpoint{size}, saved every {every}"

    return f"{odds}; {effect}"


def _loses_all(plan: JobPlan) -> bool:
    """Whether an eviction would begin the job again."""
    return isinstance(plan.job.spec.program, Command) and plan.decision.checkpoints is None


def _saving(plan: JobPlan, cost: Spread) -> str:
    """The share of the cost on demand that a plan saves, from its P90 to its P10."""
    least, most = (max(1 - usd / plan.cost.on_demand.usd, 0.0) for usd in reversed(cost.likely))
    if _is_guess(plan):
        return f"up to {most:.0%} saved if spot holds"
    texts = dict.fromkeys([f"{least:.0%}", f"{most:.0%}"])
    return f"{' to '.join(texts)} saved"


def _next_best(plan: JobPlan) -> str:
    """The cheapest market that the plan does not use, and about what the job would cost there."""
    none = "none: no other market can do the work"
    if not any(choice.usd_per_work for choice in plan.cost.choice):
        costs = [rejected.instead for rejected in plan.rejected if rejected.instead is not None]
        other = min(costs, key=attrgetter("usd_per_work"), default=None)
        if other is None:
            return none
        price = f"${other.usd_per_work:.4g} per {plan.demand.unit}"
        return f"{other.rent.offer.market}: {price}, instead of machines that are paid for already"

    others = [market for market in plan.rejected if market.relative_cost is not None]
    best = min(others, key=attrgetter("relative_cost"), default=None)
    if best is None or best.relative_cost is None or not isfinite(best.relative_cost):
        return none

    forecast, assumed = forecast_of(plan), plan.demand.work.assumed
    cost = forecast.usd_per_hour if assumed else forecast.usd
    usd = usd_text(cost.median * best.relative_cost)
    each = " per hour" if assumed else ""
    more, change = best.relative_cost - 1, "as much"
    if more >= 0.005:
        change = f"{more:.0%} more"
    elif more <= -0.005:
        change = (
            f"{-more:.0%} less {'without an eviction' if _loses_all(plan) else 'by this estimate'}"
        )

    return f"about {usd}{each} on {best.market}: {change}"


def _if_none_boots(plan: JobPlan) -> str | None:
    """The most that machines cost which are ordered together and do not boot; of others, one is
    tried at a time.
    """
    is_close, lost = plan.job.spec.resources.placement == CLOSE, list[tuple[float, int, int]]()
    for choice in plan.cost.choice:
        market, machines = choice.rent.offer.market, choice.rent.machines
        stated, is_whole = stated_time(market), is_close or market.reservation
        if stated is not None and machines > 1 and is_whole:
            orders = ceil(MAX_SILENT_MACHINES / machines)
            usd = orders * machines * choice.price / NANOS_PER_DOLLAR * stated / HOUR
            lost.append((usd, machines, stated // MINUTE))

    usd, machines, minutes = max(lost, default=(0.0, 0, 0))
    if not usd:
        return None
    together = f"{machines} machines are ordered together"
    return f"up to {usd_text(usd)}: {together}, and returned after {minutes} silent minutes"


def _turns(plan: JobPlan) -> str | None:
    """Who uses the quotas when, if they do not hold all jobs at the same time."""
    waited = [share for share in plan.share.quotas if not share.is_enough]
    if not any(part.turn.begin for share in waited for part in share.slices):
        return None

    first, later, launched = list[str](), list[str](), launch_moment(plan)
    for part in waited[0].slices:
        turns = later if part.turn.begin else first
        turns.append(f"{part.job}{until_text(part, launched)}")

    # Without a first one, jobs that run already use the quotas.
    begins = " and ".join(first) or "jobs that run"
    order = ", then ".join([begins, *later])
    quotas = ", ".join(str(share.quota) for share in waited)
    return f"{order} ({quotas})"


def restart_words(plan: JobPlan) -> str | None:
    """How often an eviction starts a command from scratch, and what it loses; None if none does."""
    decision, choices = plan.decision, plan.cost.choice
    has_spot = any(choice.rent.bid is not None for choice in choices)
    is_command = isinstance(plan.job.spec.program, Command)
    if decision.checkpoints is not None or not is_command or not has_spot:
        return None

    often = ""
    if decision.interval and isfinite(decision.interval.life):
        between = hours_text(decision.interval.life / HOUR)
        often = f", about every {between},"

    lost, work = "all work so far", plan.demand.work
    if work.hours is not None and not work.assumed:
        per_hour = sum(choice.price * choice.rent.machines for choice in choices)
        usd = usd_text(per_hour / NANOS_PER_DOLLAR * work.hours)
        lost = f"up to {usd} of work"

    return f"each eviction{often} starts it from scratch and loses {lost}"
