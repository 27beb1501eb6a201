"""Do machines that are held together go together? python -m bench.forecast_clusters [FOLDER]

On each availability record of at least four machines: at a moment that loses machines, the share of
them that goes; and the variance of the losses over that of machines that go independently (1 if
they do, their number if all go at once).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from pricing_data.availability import AvailabilityTrace
from pricing_data.sources.observations import read_availability

_LEAST = 4


def line(name: str, trace: AvailabilityTrace) -> str:
    """One line of the table."""
    held, lost = trace.up[:-1], np.maximum(-np.diff(trace.up), 0)
    losing = lost > 0
    rate = lost.sum() / held.sum()
    excess = ((lost - rate * held) ** 2).sum() / (held * rate * (1 - rate)).sum()
    share = lost.sum() / held[losing].sum()
    return f"{name:58} {losing.sum():8} {held[losing].mean():6.1f} {share:6.0%} {excess:9.1f}"


def main(words: list[str]) -> None:
    """Prints the table."""
    folder = Path(words[0] if words else "../shared/data") / "availability"
    print(f"{'record':58} {'moments':>8} {'held':>6} {'gone':>6} {'variance':>9}")
    for path in sorted(folder.glob("*.json.gz")):
        trace = read_availability(path)
        if trace.wanted >= _LEAST and trace.preemptions:
            print(line(path.name.removesuffix(".json.gz"), trace))


if __name__ == "__main__":
    main(sys.argv[1:])
