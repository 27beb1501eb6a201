"""The README's picture: `python -m bench.readme_picture` replays one job four ways and draws what each of them cost.

It needs the records of real prices and availability that `examples/backtest_today.yaml` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bidbrain.lab.backtest.run import backtest
from bidbrain.lab.backtest.scenario import Scenario
from pricing_data.library import Library
from pricing_data.store import PriceStore
from spotctl.lab.backtest.scenario import load
from spotctl.show.costs.markup import Html, el

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "examples" / "backtest_today.yaml"
PICTURE = ROOT / "docs" / "pictures" / "cost.svg"
HOURS = 20.0
USUAL = "standard+checkpoint"
WAYS = (
    ("on-demand", None, "On demand", "never evicted"),
    (USUAL, None, "Spot, slow checkpoints", "take {taken:.0%} of the time; restarts"),
    (USUAL, 0.98, "Spot, fast checkpoints", "take {taken:.0%} of the time; restarts"),
    ("price-capacity", None, "spotctl, a trainer", "no restarts; on up to 24 GPUs"),
)
"""By strategy and the speed with checkpoints (None: the scenario's), the name of a way and what it does."""

_STYLE = """
text { font: 15px system-ui, "Segoe UI", "Liberation Sans", sans-serif; fill: #16191d; }
.paper { fill: #fff; stroke: #dfe3e8; } .soft { fill: #56606b; font-size: 13px; }
.amount, .title { font-weight: 650; font-size: 17px; }
.on-demand { fill: #7d8aa5; } .standard-checkpoint { fill: #cf7a0e; } .price-capacity { fill: #14866d; }
@media (prefers-color-scheme: dark) {
  text { fill: #edeff2; } .paper { fill: #121417; stroke: #2e333a; } .soft { fill: #a3adb8; }
  .on-demand { fill: #7686a5; } .standard-checkpoint { fill: #f0a848; } .price-capacity { fill: #48bd9f; }
}
"""
_WIDTH, _LEFT, _ROW, _TOP, _LONGEST = 480, 24, 74, 58, 312
_SHOWN = 560
"""The width on a screen with room for it. A phone shrinks the picture, and its text stays readable."""


@dataclass(frozen=True)
class Way:
    """A way of running the job: its mean cost and time over all starts."""

    strategy: str
    name: str
    how: str
    usd: float
    hours: float
    evictions: float


def replayed() -> list[Way]:
    """The job at each of the scenario's random starts, in each of the ways."""
    loaded, _ = load(SCENARIO, Library(PriceStore(Path("no-such-folder"))), print)
    scenario = replace(loaded, hours=(HOURS,))
    return [_replayed(scenario, *way) for way in WAYS]


def _replayed(scenario: Scenario, strategy: str, speed: float | None, name: str, how: str) -> Way:
    checkpoints = scenario.checkpoints if speed is None else replace(scenario.checkpoints, speed=speed)
    results = backtest(replace(scenario, checkpoints=checkpoints), (strategy,))
    return Way(
        strategy,
        name,
        how.format(taken=1 - checkpoints.speed),
        fmean(result.cost for result in results),
        fmean(result.runtime_hours for result in results),
        fmean(result.evictions for result in results),
    )


def drawn(ways: Sequence[Way]) -> Html:
    """An SVG picture with a bar for each way. Its style follows the viewer's light or dark scheme."""
    height = _TOP + _ROW * len(ways) + 52
    most = max(way.usd for way in ways)
    title = f"{HOURS:g} hours of training on 16 V100 GPUs"
    notes = ("AWS us-west-2: prices of early 2020, availability", "recorded in 2022 and 2023, mean of 60 starts")
    return el(
        "svg",
        el("title", f"{title}: {'; '.join(f'{way.name} {_amount(way)}' for way in ways)}"),
        el("style", Html(_STYLE)),
        el("rect", x=0.5, y=0.5, width=_WIDTH - 1, height=height - 1, rx=10, class_="paper"),
        el("text", title, x=_LEFT, y=36, class_="title"),
        *(part for row, way in enumerate(ways) for part in _bar(way, _TOP + _ROW * row, most)),
        *(el("text", note, x=_LEFT, y=height - 38 + 19 * line, class_="soft") for line, note in enumerate(notes)),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_SHOWN,
        height=_SHOWN * height // _WIDTH,
        role="img",
    )


def _bar(way: Way, top: int, most: float) -> tuple[Html, ...]:
    width = _LONGEST * way.usd / most
    return (
        el("text", way.name, el("tspan", way.how, dx=12, class_="soft"), x=_LEFT, y=top + 16),
        el("rect", x=_LEFT, y=top + 25, width=width, height=36, rx=4, class_=way.strategy.replace("+", "-")),
        el("text", _amount(way), x=_LEFT + width + 12, y=top + 49, class_="amount"),
    )


def _amount(way: Way) -> str:
    return f"${way.usd:,.0f}, {way.hours:.0f} h"


def main() -> None:
    """Prints the figures and writes the picture."""
    ways = replayed()
    for way in ways:
        print(f"{way.name:24} ${way.usd:8.2f}  {way.hours:5.1f} h  {way.evictions:4.1f} evictions")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(ways) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
