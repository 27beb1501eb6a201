"""How well unmeasured throughputs are estimated: `python -m bench.gavel_estimator THROUGHPUTS.json.gz`.

Each job of one worker that runs on all types is new in turn: a few of its pairs with the others are measured, all other
pairs are estimated. Errors are in shares of what each job of a pair does alone. Beside the low-rank completion stand
the mean of the references and the closest reference. `other models` also takes away the new job's siblings: the same
model with other batch sizes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from bidbrain.gavel.estimator import References, alone_of_new, pairs_of_new, shares_of
from bidbrain.gavel.problem import FloatArray
from spotctl.files.throughputs import read_throughputs

TYPES = ("v100", "p100", "k80")
SEEDS = range(3)
MEASURED = (2, 4, 8, 16)


def main(path: Path) -> None:
    """Prints both tables."""
    table = read_throughputs(path).on(TYPES)
    single = [i for i, kind in enumerate(table.kinds) if kind.scale == 1 and (table.alone[i] > 0).all()]
    names = [table.kinds[i].name.split(" (")[0] for i in single]
    alone = table.alone[single]
    references = References(alone, table.together[np.ix_(single, single)])
    print("pairs of a new job: mean absolute error of the unmeasured shares")
    print(f"{'references':14} {'measured':>8} {'mean':>8} {'closest':>8} {'low rank':>8} {'ratio':>7}")
    for label, siblings in (("all others", True), ("other models", False)):
        for measured in MEASURED:
            mean, closest, low_rank = _pairs(references, names, measured, siblings=siblings)
            print(f"{label:14} {measured:8d} {mean:8.4f} {closest:8.4f} {low_rank:8.4f} {mean / low_rank:6.2f}x")
    print("\na new job alone, measured on one type: error of the factor on the others, as a standard deviation of logs")
    print(f"{'measured on':14} {'mean':>8} {'low rank':>8}")
    for at, name in enumerate(TYPES):
        print(f"{name:14} " + " ".join(f"{error:8.3f}" for error in _alone(alone, at)))


def _pairs(references: References, names: list[str], measured: int, *, siblings: bool) -> FloatArray:
    """Mean absolute errors of the mean, the closest reference and the low-rank row, over jobs and draws."""
    errors = []
    for new, name in enumerate(names):
        kept = [i for i, other in enumerate(names) if i != new and (siblings or other != name)]
        known = References(references.alone[kept], references.together[np.ix_(kept, kept)])
        alone, truth = references.alone[new], references.together[new][kept]
        shares = shares_of(alone, known.alone, truth)
        for seed in SEEDS:
            rng = np.random.default_rng([seed, new, measured])
            cells = np.zeros(known.alone.size, dtype=np.bool_)
            cells[rng.choice(cells.size, size=measured, replace=False)] = True
            seen = cells.reshape(known.alone.shape)
            pairs, found = pairs_of_new(known, alone, np.where(seen[:, :, None], truth, np.nan))
            guesses = (known.shares.mean(axis=0), known.shares[found.closest], shares_of(alone, known.alone, pairs))
            errors.append([np.abs(guess - shares)[~np.tile(cells, 2)].mean() for guess in guesses])
    return np.asarray(np.mean(errors, axis=0), dtype=np.float64)


def _alone(alone: FloatArray, at: int) -> tuple[float, float]:
    """Root mean squares of log errors: with the mean factor between the types, and with the model."""
    plain, model = [], []
    for new in range(len(alone)):
        others, truth = np.delete(alone, new, axis=0), alone[new]
        measured = np.where(np.arange(len(truth)) == at, truth, np.nan)
        factors = np.exp(np.log(others / others[:, [at]]).mean(axis=0))
        unknown = np.arange(len(truth)) != at
        plain += list(np.log(factors * truth[at] / truth)[unknown])
        model += list(np.log(alone_of_new(others, measured).values / truth)[unknown])
    return float(np.sqrt(np.mean(np.square(plain)))), float(np.sqrt(np.mean(np.square(model))))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m bench.gavel_estimator THROUGHPUTS.json.gz")
    main(Path(sys.argv[1]))
