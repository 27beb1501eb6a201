"""Sets up strategies from a scenario's training span, and the decider of a scenario's jobs."""

from math import ceil

from bidbrain.backtest.scenario import BadScenario, Scenario
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.replay.pace import PastJobs
from bidbrain.strategies.base import Strategy
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.registry import BadStrategy, StrategySetup, set_up


def inputs_of(scenario: Scenario, zone: str) -> StrategyInputs:
    """Everything that a strategy may know about the offers of a zone."""
    offers = scenario.offers_in(zone)
    return StrategyInputs(
        offers=offers,
        histories={offer.market: scenario.learned(offer.market) for offer in offers},
        hazards=scenario.hazards(offer.market for offer in offers),
        baseline=scenario.baseline,
        reliable=scenario.reliable,
        billing=scenario.billing,
        overheads=scenario.overheads,
        checkpoints=scenario.checkpoints,
        pace=PastJobs(scenario.hours, scenario.most_nu),
    )


def set_up_in(scenario: Scenario, name: str, zone: str) -> StrategySetup:
    """Builds the strategy with this name for the offers of a zone."""
    try:
        return set_up(name, inputs_of(scenario, zone))
    except BadStrategy as error:
        raise BadScenario(f"schemes: {error}") from None


def decider_of(scenario: Scenario, zone: str, strategy: Strategy) -> Decider:
    """The decision object of a launch, for jobs without a budget and a deadline."""
    offers = scenario.offers_in(zone)
    most = ceil(scenario.most_nu / min(offer.nu for offer in offers))
    return Decider(
        offers=offers,
        baseline=scenario.baseline,
        reliable=scenario.reliable,
        most_nu=scenario.most_nu,
        limits=MachineLimits(0, most, {}),
        overheads=scenario.overheads,
        deadline=None,
        strategy=strategy,
        billing=scenario.billing,
        lease=0,
        caps_bids=True,
    )
