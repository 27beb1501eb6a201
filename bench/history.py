"""The ratios of earlier benchmark runs, and which of today's are clearly worse.

Only ratios to a peer or limit of the same run are kept: absolute times depend on the computer. A
ratio written `5.2x` says how many times better we are, so higher is better; any other ratio is ours
over the peer's, so lower is better.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

HISTORY = Path(__file__).with_name("history.csv")
FIELDS = ("date", "section", "what", "ratio", "higher_is_better")

THRESHOLD = 1.3
"""A ratio this many times worse than the median of its history is reported; less than that is
noise."""

_RATIO = re.compile(r"([\d.]+(?:e[+-]?\d+)?)(x?)")


@dataclass(frozen=True)
class Ratio:
    """One measured ratio."""

    section: str
    what: str
    value: float
    higher_is_better: bool

    def times_worse(self, before: float) -> float:
        """How many times worse than an earlier ratio: above 1 is worse."""
        return before / self.value if self.higher_is_better else self.value / before


def ratios(sections: Iterable[str]) -> list[Ratio]:
    """The ratios in the tables of benchmark sections."""
    listed = []
    for section in sections:
        title = section.splitlines()[0].removeprefix("## ")
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            match = _RATIO.match(cells[-1]) if line.startswith("| ") and len(cells) == 4 else None
            if match:
                listed.append(Ratio(title, cells[0], float(match[1]), match[2] == "x"))
    return listed


def append(today: Iterable[Ratio], path: Path = HISTORY) -> None:
    """Adds today's ratios to the history."""
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(FIELDS)
        day = date.today()  # noqa: DTZ011 - a label
        writer.writerows(
            (day, ratio.section, ratio.what, ratio.value, int(ratio.higher_is_better))
            for ratio in today
        )


def earlier(path: Path = HISTORY) -> Mapping[tuple[str, str], float]:
    """The median of each ratio's history."""
    values = defaultdict[tuple[str, str], list[float]](list)
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                values[row["section"], row["what"]].append(float(row["ratio"]))
    return {key: statistics.median(history) for key, history in values.items()}


def regressions(today: Iterable[Ratio], before: Mapping[tuple[str, str], float]) -> list[str]:
    """A line for each ratio that is worse than its history by more than the threshold."""
    return [
        f"{ratio.section}: {ratio.what}: ratio {ratio.value:g}, {worse:.2f} times worse than the "
        f"median {past:g}"
        for ratio in today
        if (past := before.get((ratio.section, ratio.what)))
        and ratio.value
        and (worse := ratio.times_worse(past)) > THRESHOLD
    ]
