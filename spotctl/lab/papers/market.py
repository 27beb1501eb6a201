"""Proteus and TierML: jobs at random moments of a recorded spot market, as
`examples/backtest_2016.yaml` plays them.

Neither paper's record can be had. Ours is another period of the same region, without the papers'
machine types.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from bidbrain.billing import usd
from bidbrain.lab.backtest.results import BacktestSummary, JobResult, summarize
from bidbrain.lab.backtest.run import backtest, jobs_in, run_strategy, set_up_in, set_ups_in
from bidbrain.lab.backtest.scenario import Scenario
from bidbrain.replay.job import run_job
from bidbrain.strategies.base import Decision, Overheads, Rent, Situation, Strategy
from bidbrain.strategies.registry import StrategySetup
from bidbrain.strategies.standard import Standard
from pricing_data.library import Library
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.lab.backtest.scenario import ScenarioFile, scenario_of
from spotctl.lab.papers.results import Experiment, FigureValues, PaperData

PRICES, LISTED = (
    "prices/aws_us-east-1_2016-02-24_2016-04-05.csv.gz",
    "prices/aws_on_demand_linux.csv.gz",
)
RECORD = "AWS us-east-1, 25 February to 5 April 2016, without c4"
TYPES = ("m4.4xlarge", "m4.10xlarge", "cr1.8xlarge", "hi1.4xlarge", "d2.*")
TWO_SIZES = ("d2.xlarge", "d2.2xlarge")
"""The only family in all zones of the record with a size and its double, as the papers' c4.xlarge
and c4.2xlarge."""
STARTS = 20
"""Jobs for each seed, zone and length."""
CHECKPOINTS, AGILEML, PROTEUS = "standard+checkpoint", "standard+agileml", "proteus"


@cache
def recorded(data: PaperData, types: Sequence[str] = TYPES) -> Scenario:
    """64 c4.2xlarge on demand against spot machines of these types, in jobs of 2 and of 20
    hours."""
    path, middle = data.file(PRICES), "2016-03-15T22:35:26Z"
    baseline = {"type": "c4.2xlarge", "machines": 64}
    content = {
        "prices": [path],
        "on_demand": {"file": data.file(LISTED), "asof": "2016-04-18"},
        "train": ["2016-02-24T21:10:53Z", middle],
        "test": [middle, "2016-04-04T23:59:59Z"],
        "job": {"baseline": baseline, "hours": [2, 20]},
        "markets": {"types": list(types)},
        "reliable": {"type": "c4.xlarge", "machines": 3},
        "max_vcpus": 756,
        "starts": STARTS,
        "schemes": [PROTEUS],
    }

    file = ScenarioFile.model_validate(content)
    with tempfile.TemporaryDirectory() as empty:
        library = Library(PriceStore(Path(empty)))
        return scenario_of(file, path, library, lambda _: None)


def _seeded(data: PaperData, seed: int, types: Sequence[str] = TYPES) -> Scenario:
    return replace(recorded(data, tuple(types)), seed=seed)


def _by_hours(results: Iterable[JobResult]) -> dict[str, dict[float, BacktestSummary]]:
    """Summaries by strategy and length of jobs."""
    table: dict[str, dict[float, BacktestSummary]] = {}
    for summary in summarize(results):
        table.setdefault(summary.scheme, {})[summary.hours] = summary
    return table


def _standard(scenario: Scenario, name: str = CHECKPOINTS, *, by_machine: bool) -> list[JobResult]:
    """The standard strategy, which takes the cheapest vCPU, or the cheapest machine."""
    results = []
    for zone in scenario.zones:
        chosen = set_ups_in(scenario, name, zone)
        if by_machine:
            chosen = {
                hours: replace(each, strategy=Standard(by_machine=True))
                for hours, each in chosen.items()
            }
        results += run_strategy(scenario, zone, chosen)

    return results


def _saved(ours: BacktestSummary, other: BacktestSummary) -> float:
    return 1 - ours.cost_pct / other.cost_pct


# -- Proteus


def _proteus(seed: int, data: PaperData, *, at_once: bool = False) -> FigureValues:
    """Proteus against the standard strategy with checkpoints; `at_once`, machines start and leave
    in no time.
    """
    scenario = _seeded(data, seed)
    if at_once:
        scenario = replace(scenario, overheads=Overheads(0, 0, 0))
    table, values = _by_hours(backtest(scenario, [CHECKPOINTS, PROTEUS])), dict[str, float]()
    for hours, ours in table[PROTEUS].items():
        other, jobs = table[CHECKPOINTS][hours], f"{hours:g}-hour jobs"
        time = ours.runtime_ratio / other.runtime_ratio
        values[f"{jobs}: saved against on demand"] = 1 - ours.cost_pct / 100
        values[f"{jobs}: saved against standard with checkpoints"] = _saved(ours, other)
        values[f"{jobs}: time saved against standard with checkpoints"] = 1 - time
        values[f"{jobs}: share of free computing"] = ours.free_pct / 100

    return values


def _other_causes(seed: int, data: PaperData) -> FigureValues:
    """Proteus against the standard strategy with checkpoints in jobs of 20 hours, with one thing
    changed at a time.
    """
    hours = (20.0,)
    plain = replace(_seeded(data, seed), hours=hours)
    ours = _by_hours(backtest(plain, [PROTEUS, _LOWEST]))
    proteus, lowest = ours[PROTEUS][20.0], ours[_LOWEST][20.0]
    half = replace(plain, checkpoints=replace(plain.checkpoints, speed=0.5))
    unchanged = _standard(plain, by_machine=False)
    cheap = {
        "nothing changed": unchanged,
        "standard takes the cheapest machine": _standard(plain, by_machine=True),
        "checkpoints take half of the time": backtest(half, [CHECKPOINTS]),
    }

    values = dict[str, float]()
    for name, results in cheap.items():
        standard = _by_hours(results)[CHECKPOINTS][20.0]
        values[name] = _saved(proteus, standard)

    two_sizes = replace(_seeded(data, seed, TWO_SIZES), hours=hours)
    others = {
        "all zones together": replace(plain, zones_together=True),
        "two sizes of one family": two_sizes,
    }
    for name, scenario in others.items():
        table = _by_hours(backtest(scenario, [CHECKPOINTS, PROTEUS]))
        of_proteus, of_standard = table[PROTEUS][20.0], table[CHECKPOINTS][20.0]
        values[name] = _saved(of_proteus, of_standard)

    usual = _by_hours(unchanged)[CHECKPOINTS][20.0]
    values["bids just above the price"] = _saved(lowest, usual)
    return values


def _elastic(seed: int, data: PaperData, *, reliable: bool = True) -> FigureValues:
    """AgileML alone: the standard strategy with elastic training against checkpoints."""
    scenario = _seeded(data, seed)
    if not reliable:
        scenario = replace(scenario, reliable=None)
    table, values = _by_hours(backtest(scenario, [CHECKPOINTS, AGILEML])), dict[str, float]()
    for hours, ours in table[AGILEML].items():
        saved = _saved(ours, table[CHECKPOINTS][hours])
        values[f"{hours:g}-hour jobs: saved against standard with checkpoints"] = saved
    return values


_LOWEST = "fixed-bid:0.0001"


def _low_bids(seed: int, data: PaperData, *, checkpoints: bool = False) -> FigureValues:
    """Bids just above the price against those of Proteus; with `checkpoints`, which take half of
    the time at such bids (T295), an eviction undoes work."""
    scenario, results = _seeded(data, seed), list[JobResult]()
    for zone in scenario.zones:
        chosen = set_ups_in(scenario, _LOWEST, zone)
        if checkpoints:
            recovery = replace(set_up_in(scenario, CHECKPOINTS, zone).recovery, speed=0.5)
            chosen = {hours: replace(each, recovery=recovery) for hours, each in chosen.items()}
        results += run_strategy(scenario, zone, chosen)

    table = _by_hours([*results, *backtest(scenario, [PROTEUS])])
    values = {}
    for hours, low in table[_LOWEST].items():
        usual = table[PROTEUS][hours]
        values[f"{hours:g}-hour jobs: run time"] = low.runtime_ratio / usual.runtime_ratio
        values[f"{hours:g}-hour jobs: cost"] = low.cost_pct / usual.cost_pct

    return values


def _lookahead(seed: int, data: PaperData) -> FigureValues:
    table = _by_hours(backtest(_seeded(data, seed), [PROTEUS, "lookahead"]))
    values = dict[str, float]()
    for hours, ours in table["lookahead"].items():
        proteus, jobs = table[PROTEUS][hours], f"{hours:g}-hour jobs"
        values[f"{jobs}: cost"] = ours.cost_pct / proteus.cost_pct
        values[f"{jobs}: run time"] = ours.runtime_ratio / proteus.runtime_ratio
    return values


# -- TierML

_TIERML = "tierml"


def _tierml(seed: int, data: PaperData, *, by_machine: bool = False) -> FigureValues:
    """TierML against the standard strategy with checkpoints."""
    scenario = _seeded(data, seed)
    tierml, standard = backtest(scenario, [_TIERML]), _standard(scenario, by_machine=by_machine)
    table, values = _by_hours([*tierml, *standard]), dict[str, float]()
    for hours, ours in table[_TIERML].items():
        saved = _saved(ours, table[CHECKPOINTS][hours])
        values[f"{hours:g}-hour jobs: saved against on demand"] = 1 - ours.cost_pct / 100
        values[f"{hours:g}-hour jobs: saved against checkpoints"] = saved

    return values


@dataclass(frozen=True, slots=True)
class _NearBids:
    """A strategy whose bids are the price, rounded up to the next step for each vCPU."""

    inner: Strategy
    name: str = "near bids"
    step: int = NANOS_PER_DOLLAR // 80
    """T: a dime for 8 vCPUs, a nickel for 4."""

    def decide(self, situation: Situation) -> Decision:
        decision = self.inner.decide(situation)
        actions = list(decision.actions)
        for i, action in enumerate(actions):
            if isinstance(action, Rent) and action.spot:
                step = round(self.step * action.offer.nu)
                price = situation.price(action.offer)
                steps = -(-price // step)
                bid = steps * step
                actions[i] = replace(action, bid=bid)
        return replace(decision, actions=tuple(actions))


def _paid_bids(seed: int, data: PaperData, *, by_machine: bool = False) -> FigureValues:
    """TierML against the standard strategy with checkpoints where each hour costs what was bid."""
    scenario = _seeded(data, seed)
    costs: dict[str, dict[float, list[float]]] = {_TIERML: {}, CHECKPOINTS: {}}
    for zone in scenario.zones:
        for name, by_hours in costs.items():
            chosen = set_up_in(scenario, name, zone)
            if name == CHECKPOINTS:
                chosen = replace(chosen, strategy=Standard(by_machine=by_machine))
            for hours, share in _shares_paid(scenario, zone, chosen):
                by_hours.setdefault(hours, []).append(share)

    values = dict[str, float]()
    for hours, ours in costs[_TIERML].items():
        total, jobs = sum(ours), f"{hours:g}-hour jobs"
        standard = sum(costs[CHECKPOINTS][hours])
        values[f"{jobs}: saved against on demand"] = 1 - total / len(ours)
        values[f"{jobs}: saved against checkpoints"] = 1 - total / standard

    return values


def _shares_paid(
    scenario: Scenario, zone: str, chosen: StrategySetup
) -> Iterable[tuple[float, float]]:
    """The cost of each job as a share of on demand, with its length; machines cost what was bid for
    them.
    """
    strategy, market = _NearBids(chosen.strategy), scenario.replay_in(zone)
    usual, reliable = scenario.baseline, scenario.reliable
    for hours, job in jobs_in(scenario, zone):
        run = run_job(job, strategy, market, scenario.overheads, chosen.recovery)
        paid = list[float]()
        for tenure in run.tenures:
            bill = scenario.billing.bill(tenure.life, tenure.rent.highest_price)
            paid.append(tenure.rent.machines * usd(bill.amount))

        dollars = sum(paid)
        if chosen.reliable and reliable is not None:
            end = job.limit if run.end is None else run.end
            hourly = reliable.machines * reliable.offer.on_demand / NANOS_PER_DOLLAR
            dollars += hourly * (end - job.start) / HOUR
        on_demand = usual.machines * usual.offer.on_demand / NANOS_PER_DOLLAR
        yield hours, dollars / (on_demand * hours)


def _switching(seed: int, data: PaperData, *, types: Sequence[str] = TWO_SIZES) -> FigureValues:
    """TierML that chooses among types, against the same with one of them, on average."""
    among = _by_hours(backtest(_seeded(data, seed, types), [_TIERML]))[_TIERML]
    offers = recorded(data, tuple(types)).offers
    names = [offer.market.instance_type for offer in offers]
    alone = list[Mapping[float, BacktestSummary]]()
    for name in dict.fromkeys(names):
        scenario = _seeded(data, seed, (name,))
        results = _by_hours(backtest(scenario, [_TIERML]))
        alone.append(results[_TIERML])

    values, count = dict[str, float](), len(alone)
    for hours, ours in among.items():
        cost = sum(each[hours].cost_pct for each in alone)
        time = sum(each[hours].runtime_ratio for each in alone)
        jobs = f"{hours:g}-hour jobs"
        values[f"{jobs}: cost saved"] = 1 - ours.cost_pct * count / cost
        values[f"{jobs}: time saved"] = 1 - ours.runtime_ratio * count / time

    return values


_FILES = (PRICES, LISTED)
_AT_ONCE = "machines that start in no time, not in 5 minutes, and no pauses of 60 and 30 seconds"
_BY_MACHINE = "a checkpointing scheme that takes the cheapest machine, not the cheapest vCPU"

RESULTS = (
    Experiment(
        "proteus-cost",
        _proteus,
        6.0,
        "The texts state no start-up time of machines and no lengths of pauses; with ours, Proteus "
        "buys less often and"
        " close to the price less often, so that fewer of its hours are refunded.",
        needs=_FILES,
        cause=_AT_ONCE,
        switched=partial(_proteus, at_once=True),
        record=RECORD,
    ),
    Experiment(
        "proteus-other-causes",
        _other_causes,
        15.0,
        "Each row changes one thing, for jobs of 20 hours; the first changes none. The texts let "
        "the standard strategy"
        " choose by the price of a machine, which is far from the price of a vCPU where sizes "
        "differ by 10 times.",
        needs=_FILES,
        record=RECORD,
    ),
    Experiment(
        "agileml-cost",
        _elastic,
        1.0,
        "Both pay for their machines alike; AgileML pays for three reliable c4.xlarge as well.",
        needs=_FILES,
        cause="reliable machines that cost nothing",
        switched=partial(_elastic, reliable=False),
        record=RECORD,
    ),
    Experiment(
        "bidbrain-low-bids",
        _low_bids,
        15.0,
        "An elastic job only pauses for a minute when it is evicted, so here low bids are cheaper "
        "and hardly slower;"
        " the text speaks of applications with significant overheads of evictions.",
        needs=_FILES,
        cause="recovery from checkpoints, which take half of the time at such bids (T295)",
        switched=partial(_low_bids, checkpoints=True),
        record=RECORD,
    ),
    Experiment(
        "proteus-lookahead",
        _lookahead,
        12.0,
        "The project's own strategy on the same record, at the price of time at which it was as "
        "fast as Proteus before (decision 7).",
        needs=_FILES,
        record=RECORD,
    ),
    Experiment(
        "tierml-cost",
        _tierml,
        3.0,
        "Both papers' checkpointing schemes take the least expensive option; here that is the "
        "cheapest vCPU, which is hardly more expensive than what TierML takes.",
        needs=_FILES,
        cause=_BY_MACHINE,
        switched=partial(_tierml, by_machine=True),
        record=RECORD,
    ),
    Experiment(
        "tierml-paid-bids",
        _paid_bids,
        2.0,
        "Bids are the price, rounded up to the next $0.0125 for each vCPU, and are paid (T301).",
        needs=_FILES,
        cause=_BY_MACHINE,
        switched=partial(_paid_bids, by_machine=True),
        record=RECORD,
    ),
    Experiment(
        "tierml-switching",
        _switching,
        12.0,
        "TierML with two sizes of a family against TierML with one of them, on average.",
        needs=_FILES,
        cause="all types of the record, whose prices differ more",
        switched=partial(_switching, types=TYPES),
        record=RECORD,
    ),
)
