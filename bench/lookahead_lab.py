"""What was tried towards a strategy that beats proteus: `python -m bench.lookahead_lab SCENARIO.yaml [HOURS...]`.

Each row is proteus with the room bought in requests of so much work per hour, and with a price of time (dollars for
each hour of the job) added to what its reliable machines cost, which makes it prefer what is done sooner.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from bidbrain.backtest.engine import AGILE
from bidbrain.backtest.results import JobResult, summarise
from bidbrain.backtest.run import run_scheme
from bidbrain.backtest.scenario import Scenario
from bidbrain.backtest.schemes import Scheme, application_of, odds_of
from bidbrain.strategies.odds import bid_deltas
from bidbrain.strategies.proteus import REQUEST_NU, Proteus
from pricing_data.library import Library
from pricing_data.store import PriceStore
from spotctl import scenario_file

PRICES_OF_TIME = (0.0, 0.25, 0.5)


def main(words: Sequence[str]) -> None:
    """Prints cost and run time of each variant."""
    if not words:
        sys.exit("usage: python -m bench.lookahead_lab SCENARIO.yaml [HOURS...]")
    loaded = scenario_file.load(Path(words[0]), Library(PriceStore(Path("no-such-folder")))).scenario
    scenario = replace(loaded, hours=tuple(map(float, words[1:])) or loaded.hours)
    variants = [(request, price) for request in (REQUEST_NU, scenario.most_nu) for price in PRICES_OF_TIME]
    with ProcessPoolExecutor() as pool:
        for results in pool.map(partial(_variant, scenario), variants):
            for one in summarise(results):
                print(f"{one.scheme:44}{one.hours:4g} h  cost {one.cost_pct:6.2f}%  run time {one.runtime_ratio:.3f}")


def _variant(scenario: Scenario, variant: tuple[float, float]) -> list[JobResult]:
    request, price = variant
    name = f"requests of {request:g}, ${price:g} an hour"
    results: list[JobResult] = []
    for zone in scenario.zones:
        offers = scenario.offers_in(zone)
        plain = application_of(scenario)
        hurried = replace(plain, reliable_usd_per_hour=plain.reliable_usd_per_hour + price)
        strategy = Proteus(offers, odds_of(scenario, offers), hurried, request, bid_deltas(24), name)
        results += run_scheme(scenario, zone, Scheme(name, strategy, AGILE, reliable=True))
    return results


if __name__ == "__main__":
    main(sys.argv[1:])
