"""What `backtest regions` asks: every window under every policy, and their sums."""

from __future__ import annotations

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
    """One summary for each policy."""
    policies = list(dict.fromkeys(one.policy for one in results))
    best = sum(one.outcome.bill.total for one in results if one.policy == "optimal")
    return [_summary(name, [one for one in results if one.policy == name], best) for name in policies]


def _summary(name: str, results: list[PlayedWindow], best: float) -> PolicySummary:
    count = len(results)
    total = sum(one.outcome.bill.total for one in results)
    spot, on_demand = (sum(getattr(one.outcome, kind) for one in results) for kind in ("spot_steps", "on_demand_steps"))
    return PolicySummary(
        name,
        count,
        total / count,
        total / best - 1 if best and name != ONE_ZONE else None,
        sum(one.outcome.bill.moves for one in results) / count,
        sum(one.outcome.bill.probes for one in results) / count,
        spot / max(spot + on_demand, 1),
        sum(one.outcome.missed for one in results),
    )
