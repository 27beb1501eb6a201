"""The replay of `backtest regions`: every window under every policy, and sums by policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bidbrain.backtest.regions.policies import ONE_ZONE, PlayedWindow, played
from spotctl.lab.backtest.regions_scenario import RegionsScenario


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """A policy over all windows: means per window, `excess` over the optimum's total, and totals of misses.

    `excess` is None where the optimum was not played, or where the windows are others (a policy of single zones).
    """

    policy: str
    """Name of the policy."""
    windows: int
    """Number of windows."""
    cost_usd: float
    """Mean cost."""
    excess: float | None
    """Excess over the optimum's total cost, as a share of that; null where the optimum was not played or had other
    windows."""
    moves: float
    """Mean number of moves."""
    probes: float
    """Mean number of probes."""
    spot_share: float
    """Share of machine time on spot."""
    missed: int
    """Number of windows in which the deadline was missed."""


def play_all(scenario: RegionsScenario, on_window: Callable[[], None]) -> list[PlayedWindow]:
    """All results, window by window."""
    results = list[PlayedWindow]()
    for window in scenario.windows:
        for policy in scenario.policies:
            results += played(window, policy)
        on_window()
    return results


def summarize(results: Sequence[PlayedWindow]) -> list[PolicySummary]:
    policies = list(dict.fromkeys(result.policy for result in results))
    best = sum(result.outcome.bill.total for result in results if result.policy == "optimal")
    return [_summary(name, [result for result in results if result.policy == name], best) for name in policies]


def _summary(name: str, results: list[PlayedWindow], best: float) -> PolicySummary:
    count = len(results)
    total = sum(result.outcome.bill.total for result in results)
    spot, on_demand = (
        sum(getattr(result.outcome, kind) for result in results) for kind in ("spot_steps", "on_demand_steps")
    )
    return PolicySummary(
        name,
        count,
        total / count,
        total / best - 1 if best and name != ONE_ZONE else None,
        sum(result.outcome.bill.moves for result in results) / count,
        sum(result.outcome.bill.probes for result in results) / count,
        spot / max(spot + on_demand, 1),
        sum(result.outcome.missed for result in results),
    )
