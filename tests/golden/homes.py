"""Homes that BASE wrote once, of which scenarios of both trees get copies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.golden.plans import price_files
from tests.golden.scenario import Scenario, Step
from tests.golden.trees import CACHE, Tree, recorded

RECORDED = {
    "prices": Scenario("home of prices", [Step(("prices", "import", "history.csv"))], files=price_files(), keep=True),
}


def recorded_homes(base: Tree, names: Iterable[str]) -> dict[str, Path]:
    """The folder of each home, recorded if it is not kept from before."""
    return {name: _recorded_home(base, RECORDED[name]) for name in sorted(names)}


def _recorded_home(base: Tree, scenario: Scenario) -> Path:
    (record,) = recorded(base, base, [scenario], {}, CACHE / "homes" / base.name)
    for step in record["steps"]:
        if step["code"] not in step["expected"]:
            raise SystemExit(f"{scenario.name}: {step['title']} ended with {step['code']}: {step['err']}")
    return Path(record["home"])
