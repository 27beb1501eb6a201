"""`plan`: jobs and what is known of the markets in, for each job a constraints and its reasons out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, inf

import numpy as np

from bidbrain.gavel.effective_price import EvictionLoss, effective_usd_per_hour
from bidbrain.gavel.lp import FloatArray
from bidbrain.strategies.recovery import mean_time_to_failure
from pricing_data.series import Ints
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.errors import BadRequest, SpotctlError
from spotctl.planning.choice import chosen, wrong_with
from spotctl.planning.errors import NotInTime, OverBudget
from spotctl.planning.market_history import remembered_of
from spotctl.planning.offers import Bools, Eligible, eligible, why_unusable
from spotctl.planning.share import Asked, Share, divide, homes
from spotctl.planning.values import Columns, Job, JobPlan, Known, Question
from spotctl.planning.work import Rate, measured_for, rates, work_of

# Kinds that are looked at closely: the cheapest for the work and the fastest. Others are dearer and slower.
_CHEAPEST, _FASTEST = 24, 8
_MARKETS_OF_KIND = 4
_MOST_MACHINES = 64
"""Where a job names no limit."""


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A job with what it may use: nu by kind of the board, and the kinds worth a closer look."""

    job: Job
    eligible: Eligible
    rates: Mapping[str, Rate]
    nu: FloatArray
    kinds: list[int]


def plan(jobs: Sequence[Job], known: Known) -> list[JobPlan]:
    """A plan for each job, of one allocation over all. What cannot be done is refused with what it would take."""
    usable = known.board.usable
    lowest = _lowest_prices(known, usable)
    candidates = [_candidate(job, known, usable, lowest) for job in jobs]
    wanted = sorted({kind for candidate in candidates for kind in candidate.kinds})
    rows = _cheapest_markets(known, wanted, usable)
    price = np.array([_effective_price(known, kind, rows[kind]) for kind in wanted])
    kinds = tuple(known.board.kinds[kind] for kind in wanted)
    columns = Columns(tuple(wanted), kinds, tuple(rows[kind] for kind in wanted), price)
    asked = [_asked(candidate, known, columns) for candidate in candidates]
    shares = divide(asked, kinds, price, known.quotas)
    return [
        _first_that_fits(_question(candidate, one, share), known, columns)
        for candidate, one, share in zip(candidates, asked, shares, strict=True)
    ]


def _first_that_fits(question: Question, known: Known, columns: Columns) -> JobPlan:
    """The plan on the kind that Gavel prefers; where that breaks a budget or a deadline, on the next."""
    refused: list[SpotctlError] = []
    for home in homes(question.asked, question.share):
        try:
            found = chosen(question, home, known, columns)
            if question.asked.work.timed and (smaller := _within_budget(question, found)) is not None:
                found = chosen(smaller, home, known, columns)
        except (OverBudget, NotInTime) as error:
            refused.append(error)
            continue
        wrong = wrong_with(found)
        if wrong is None:
            return found
        refused.append(wrong)
    if refused:
        raise refused[0]
    least = question.asked.least
    raise NotInTime(
        f"{question.job.spec.name}: its share of the quotas is below {least} machines of any type; raise a quota, or"
        " plan fewer jobs at a time"
    )


def _within_budget(question: Question, found: JobPlan) -> Question | None:
    """Where time is all that ends a job, its budget says how many machines it can have for so long."""
    budget = question.job.budget_usd
    if budget is None or found.whole.usd <= budget:
        return None
    rented = sum(choice.rent.machines for choice in found.choice)
    beside = sum(term.usd for term in found.whole.terms[len(found.choice) :])
    most = floor(rented * (budget - beside) / (found.whole.usd - beside))
    if most < max(question.asked.least, 1):
        return None
    share = replace(question.share, caps=tuple(min(cap, most) for cap in question.share.caps))
    asked = replace(question.asked, most=most, reference_nu=question.asked.reference_nu * most / question.asked.most)
    return replace(question, asked=asked, share=share)


def _candidate(job: Job, known: Known, usable: Bools, lowest: Ints) -> _Candidate:
    board, spec = known.board, job.spec
    found = eligible(board, usable, spec.resources)
    kinds = found.kinds.tolist()
    if job.place is not None:
        kinds = [kind for kind in kinds if (board.kinds[kind].cloud, board.kinds[kind].region) == job.place]
    if not kinds:
        raise _nothing_usable(job, known, found)
    measured = measured_for(spec, known.earlier.get(spec.name, {}))
    names = {board.kinds[kind].type for kind in kinds} | measured.keys()
    told = rates((one for one in board.catalog.types if one.name in names), measured)
    nu = np.zeros(len(board.kinds))
    nu[kinds] = [told[board.kinds[kind].type].nu for kind in kinds]
    return _Candidate(job, found, told, nu, _worth_a_look(np.array(kinds), nu, lowest))


def _nothing_usable(job: Job, known: Known, found: Eligible) -> SpotctlError:
    name, board = job.spec.name, known.board
    if found.unusable.size:
        market, why = why_unusable(board, int(found.unusable[0]))
        return NotInTime(f"{name}: none of the {found.unusable.size} matching markets can be used; {market}: {why}")
    clouds = sorted({kind.cloud for kind in board.kinds} & set(job.spec.resources.clouds))
    if not clouds:
        wanted = ", ".join(job.spec.resources.clouds)
        return BadRequest(f"{name}: no price history of {wanted} is stored (run spotctl prices fetch or import)")
    return NotInTime(
        f"{name}: resources: no machine type in the price history of {', '.join(clouds)} matches; widen types or"
        " regions (spotctl prices ls lists what is stored)"
    )


def _lowest_prices(known: Known, usable: Bools) -> Ints:
    """The lowest price of each kind."""
    board, rows = known.board, np.flatnonzero(usable)
    lowest = np.full(len(board.kinds), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(lowest, board.kind[rows], board.price[rows])
    return lowest


def _worth_a_look(kinds: Ints, nu: FloatArray, lowest: Ints) -> list[int]:
    per_work = lowest[kinds] / nu[kinds]
    cheapest = kinds[np.argsort(per_work, kind="stable")[:_CHEAPEST]]
    fastest = kinds[np.lexsort((per_work, -nu[kinds]))[:_FASTEST]]
    found: list[int] = np.union1d(cheapest, fastest).tolist()
    return found


def _cheapest_markets(known: Known, kinds: Sequence[int], usable: Bools) -> dict[int, tuple[int, ...]]:
    """The rows of the cheapest markets of each kind."""
    board = known.board
    rows = np.flatnonzero(np.isin(board.kind, kinds) & usable)
    found: dict[int, tuple[int, ...]] = dict.fromkeys(kinds, ())
    for row in rows[np.argsort(board.price[rows], kind="stable")].tolist():
        kind = int(board.kind[row])
        found[kind] = (*found[kind], row)[:_MARKETS_OF_KIND]
    return found


def _effective_price(known: Known, kind: int, rows: Sequence[int]) -> float:
    """Dollars for an hour of lasting work: in the best of the kind's markets, or on demand."""
    listed = known.board.list_price(kind)
    return min(listed / NANOS_PER_DOLLAR, *(_effective_spot(known, row, listed) for row in rows))


def _effective_spot(known: Known, row: int, listed: int) -> float:
    board = known.board
    history = remembered_of(board.history(row), board.at)
    per_hour = HOUR / max(mean_time_to_failure(history, listed), 1.0)
    hazard = known.hazard_of(history.market)
    per_hour += 0.0 if hazard is None else hazard.rate[0]
    share = EvictionLoss(per_hour, startup_hours=known.overheads.startup / HOUR).useful_share
    usd = int(board.price[row]) / NANOS_PER_DOLLAR
    return effective_usd_per_hour(usd, share) if share > 0 else inf


def _asked(candidate: _Candidate, known: Known, columns: Columns) -> Asked:
    spec, board = candidate.job.spec, known.board
    limits = spec.resources.machines
    most = max(limits.least, _MOST_MACHINES) if limits.most is None else limits.most
    nu = candidate.nu[list(columns.numbers)]
    runs = np.flatnonzero(nu > 0)
    cheapest = runs[np.argmin(columns.usd_per_hour[runs] / nu[runs])]
    startup = known.overheads.startup
    left = inf if candidate.job.deadline is None else (candidate.job.deadline - board.at - startup) / HOUR
    work = work_of(spec, candidate.job.hours, in_units=all(rate.in_units for rate in candidate.rates.values()))
    return Asked(
        name=spec.name,
        objective=spec.objective,
        nu=nu,
        least=limits.least,
        most=most,
        work=work,
        reference_nu=most * float(nu[cheapest]),
        hours_left=left,
        budget_usd=None if spec.budget is None else spec.budget / NANOS_PER_DOLLAR,
    )


def _question(candidate: _Candidate, asked: Asked, share: Share) -> Question:
    found = candidate.eligible
    return Question(candidate.job, asked, share, candidate.rates, found.fitting, tuple(found.unusable.tolist()))
