"""`python -m bench.pipeline DATA`: estimates of data parallelism next to measured figures.

DATA holds `gavel/throughputs_isolated.csv`.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from bench.pipeline_scaling import gradient_seconds, step_seconds_on


def scaling_errors(path: Path) -> list[str]:
    """Errors of step times on 2 and 8 servers, predicted from 1 and 4, by device type."""
    with path.open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["table"] == "simulation" and row["consolidated"] == "False"
        ]
    steps: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        if float(row["steps_per_s"]) > 0:
            workers = int(row["scale_factor"])
            steps[row["gpu"], row["job_type"]][workers] = workers / float(row["steps_per_s"])
    families = defaultdict(list)
    for (gpu, job), measured in steps.items():
        if 1 in measured and 4 in measured:
            families[gpu, job.split(" (")[0]].append(measured)
    ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (gpu, _), members in families.items():
        gradients = gradient_seconds([(measured[1], measured[4], 4) for measured in members])
        for measured in members:
            for workers in {2, 8} & measured.keys():
                predicted = step_seconds_on(workers, measured[1], gradients)
                ratios[gpu].append((predicted / measured[workers], measured[1] / measured[workers]))
    return [
        f"{gpu:5} {len(pairs):4} rows: estimate {_errors([ratio for ratio, _ in pairs])};"
        f" linear speedup {_errors([speedup for _, speedup in pairs])}"
        for gpu, pairs in sorted(ratios.items())
    ]


def _errors(ratios: list[float]) -> str:
    """Median errors of predicted speed and of predicted step time."""
    speed, time = (
        median(abs(1 / ratio - 1) for ratio in ratios),
        median(abs(ratio - 1) for ratio in ratios),
    )
    return f"{speed:.1%} off in speed, {time:.1%} in step time"


def main(words: list[str]) -> None:
    """Prints the table."""
    if len(words) != 1 or not Path(words[0]).is_dir():
        sys.exit(
            "usage: python -m bench.pipeline DATA, a folder with gavel/throughputs_isolated.csv"
        )
    print("\n".join(scaling_errors(Path(words[0]) / "gavel" / "throughputs_isolated.csv")))


if __name__ == "__main__":
    main(sys.argv[1:])
