"""`python -m bench.pipeline DATA`: plans and estimates of pipeline parallelism next to published and measured figures.

DATA holds `pipedream_profiles/*.txt` and `gavel/throughputs_isolated.csv`.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

from agileml.pipeline.plan.parallel_plan import Topology
from agileml.pipeline.plan.partition import flat_splits, partition
from agileml.pipeline.profile.graph_text import read_graph
from agileml.pipeline.profile.model_profile import CostRules, ModelProfile, SpanTables
from bench.pipeline_scaling import gradient_seconds, step_seconds_on

PUBLISHED = {
    "vgg16": ("3-1", "15-1"),
    "alexnet": ("3-1", "15-1"),
    "resnet50": ("4", "16"),
    "gnmt": ("straight",) * 2,
    "gnmt_large": ("straight",) * 2,
}
"""On 4 devices and on 16."""
FOUR, SIXTEEN = Topology((4,), (1e9,)), Topology((4, 4), (10e9, 1.25e9))


def splits(folder: Path) -> list[str]:
    """A line for each measured network."""
    lines = [
        f"{'network':14} {'layers':>6} {'4 devices':>12} {'16 devices':>14} {'x one':>6} {'x data par.':>11}  published"
    ]
    for path in sorted(folder.glob("*.txt")):
        profile = read_graph(path.read_text(), model=path.stem, microbatch=1, crossing=2)
        small, large = (partition(profile, where, CostRules()) for where in (FOUR, SIXTEEN))
        weights = profile.weight_bytes
        alone = max(profile.seconds, 2 * 15 / 16 * weights / 1.25e9) / 16
        known = " and ".join(PUBLISHED.get(path.stem, ("-",)))
        speed, gain = profile.seconds / large.seconds, alone / large.seconds
        lines.append(
            f"{path.stem:14} {len(profile.layers):6} {small!s:>12} {large!s:>14} {speed:6.2f} {gain:11.2f}  {known}"
        )
    return lines


def assumptions(folder: Path) -> list[str]:
    """Splits over 16 devices under the assumptions in which the published plans differ from ours."""
    lines = []
    for name in ("alexnet", "gnmt", "gnmt_large"):
        profile = read_graph((folder / f"{name}.txt").read_text(), model=name, microbatch=1, crossing=2)
        ours, apart = CostRules(), CostRules(overlap=0.0)
        splits = {
            "as planned": partition(profile, SIXTEEN, ours),
            "all 16 devices": flat_splits(SpanTables.of(profile), SIXTEEN, ours)[-1],
            "synchronization not hidden": partition(profile, SIXTEEN, apart),
            "and the slowest layer like the others": partition(without_outlier(profile), SIXTEEN, apart),
        }
        for assumption, split in splits.items():
            lines.append(f"{name:11} {assumption:38} {1e3 * split.seconds:6.1f} ms  {split}")
    return lines


def without_outlier(profile: ModelProfile) -> ModelProfile:
    """The slowest layer's backward pass as much longer than its forward pass as in other layers."""
    slowest = max(profile.layers, key=lambda layer: layer.seconds)
    known = [layer for layer in profile.layers if layer.forward_seconds > 0.1 * slowest.forward_seconds]
    ratio = median(layer.backward_seconds / layer.forward_seconds for layer in known)
    usual = replace(slowest, backward_seconds=ratio * slowest.forward_seconds)
    return replace(profile, layers=tuple(usual if layer is slowest else layer for layer in profile.layers))


def scaling_errors(path: Path) -> list[str]:
    """Errors of step times on 2 and 8 servers, predicted from 1 and 4, by device type."""
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == "simulation" and row["consolidated"] == "False"]
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
    speed, time = median(abs(1 / ratio - 1) for ratio in ratios), median(abs(ratio - 1) for ratio in ratios)
    return f"{speed:.1%} off in speed, {time:.1%} in step time"


def main(words: list[str]) -> None:
    """Prints the tables."""
    if len(words) != 1 or not Path(words[0]).is_dir():
        sys.exit("usage: python -m bench.pipeline DATA, a folder with pipedream_profiles and gavel")
    data = Path(words[0])
    print("\n".join(splits(data / "pipedream_profiles")))
    print()
    print("\n".join(assumptions(data / "pipedream_profiles")))
    print()
    print("\n".join(scaling_errors(data / "gavel" / "throughputs_isolated.csv")))


if __name__ == "__main__":
    main(sys.argv[1:])
