"""Estimates unmeasured throughputs from a few measured ones and from reference jobs (section 5.3.3
of the dissertation).

A job's *fingerprint* is a row: its measured performance under many conditions (each worker type
with each other job). Rows of jobs vary in few directions, so a row with gaps is completed by the
low-rank model fitted to the reference rows (probabilistic PCA, Tipping and Bishop 1999): `x = mean
+ W z + noise`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Bools, Floats
from bidbrain.errors import BidBrainError

_MAX_RANKS = 8
_ROUNDS = 200
_CONVERGED = 1e-7
# Unexplained variance below this share counts as rounding; keeps the solves from being singular.
_MIN_NOISE = 1e-9


class BadFingerprint(BidBrainError):
    """Throughputs from which nothing can be estimated."""


@dataclass(frozen=True, slots=True, eq=False)
class LowRankModel:
    """The low-rank model of some rows: their mean, the directions in which they differ (columns of
    W), the noise.
    """

    mean: Floats
    directions: Floats
    noise: float

    def completed(self, row: Floats) -> Floats:
        """The row with its gaps (NaN) filled by their expectation given its other entries."""
        known = ~np.isnan(row)
        filled = row.copy()
        filled[~known] = self.mean[~known]
        if self.directions.shape[1] and known.any():
            seen = self.directions[known]
            unit = np.eye(seen.shape[1])
            noise = self.noise * unit
            precision = seen.T @ seen + noise
            apart = row[known] - self.mean[known]
            evidence = seen.T @ apart
            latent = np.linalg.solve(precision, evidence)
            unknown_directions = self.directions[~known]
            filled[~known] += unknown_directions @ latent

        return filled


def estimate(references: Floats, measured: Floats) -> tuple[Floats, int]:
    """A new job's row, completed from the references' rows, and the rank of the model; NaN marks
    unmeasured entries.

    Measured entries stay unchanged. The rank is the one with the lowest error on the references
    themselves, each left out in turn with the same gaps. Rank 0 is their mean. Estimates stay
    within the references' range in each column.
    """
    if references.ndim != 2 or references.shape[0] < 3 or measured.shape != references.shape[1:]:
        raise BadFingerprint(
            f"references of shape {references.shape} and a row of {measured.shape}: at least three "
            "references with as many columns as the row are needed"
        )

    if np.isinf(references).any() or np.isinf(measured).any():
        raise BadFingerprint("a throughput is infinite: use numbers, or NaN for unmeasured entries")

    most_ranks = references.shape[0] - 2
    references = filled(references, min(2, most_ranks))

    gaps = np.isnan(measured)
    full_rank = references.shape[0] - 2
    ranks = range(min(_MAX_RANKS, full_rank) + 1)
    errors = _left_out_errors(references, ~gaps, ranks)
    rank = int(errors.argmin())
    values = _model(references, rank).completed(measured)
    lowest = references.min(axis=0)[gaps]
    highest = references.max(axis=0)[gaps]
    values[gaps] = np.clip(values[gaps], lowest, highest)

    return values, rank


def filled(rows: Floats, rank: int) -> Floats:
    """Rows with their gaps filled from each other, alternating between fitting the model and
    filling until it converges."""
    gaps = np.isnan(rows)
    if not gaps.any():
        return rows
    if gaps.all(axis=0).any():
        raise BadFingerprint(
            f"column {int(gaps.all(axis=0).argmax())}: no reference was measured there; leave it "
            "out"
        )

    current = np.where(gaps, np.nanmean(rows, axis=0), rows)
    for _ in range(_ROUNDS):
        model = _model(current, rank)
        following = np.array([model.completed(row) for row in rows])
        change = float(np.abs(following - current).max())
        current = following
        if change <= _CONVERGED * float(np.abs(current).max()):
            break

    return current


def _model(rows: Floats, rank: int) -> LowRankModel:
    """Maximum likelihood: the leading directions, and the mean of the other variances as noise."""
    mean = rows.mean(axis=0)
    return _truncated(mean, *_spectrum(rows - mean), rank)


def _spectrum(centered: Floats) -> tuple[Floats, Floats]:
    """Variances and directions (rows) of centered rows, the largest first."""
    _, singular, directions = np.linalg.svd(centered, full_matrices=False)
    return singular**2 / centered.shape[0], directions


def _truncated(mean: Floats, variances: Floats, directions: Floats, rank: int) -> LowRankModel:
    total = float(variances.sum())
    rest_of_variance = variances[rank:].sum()
    noise = float(rest_of_variance) / max(1, mean.size - rank)
    noise = max(noise, _MIN_NOISE * total)
    beyond_noise = variances[:rank] - noise
    kept = np.sqrt(np.maximum(beyond_noise, 0.0))
    return LowRankModel(mean, directions[:rank].T * kept, noise)


def _left_out_errors(references: Floats, known: Bools, ranks: Sequence[int]) -> Floats:
    """Root mean square error by rank on the gaps, with each reference in turn as the new job."""
    squares = np.zeros(len(ranks))
    for i, row in enumerate(references):
        others = np.delete(references, i, axis=0)
        mean = others.mean(axis=0)
        spectrum = _spectrum(others - mean)
        seen = np.where(known, row, np.nan)
        for at, rank in enumerate(ranks):
            guess = _truncated(mean, *spectrum, rank).completed(seen)
            wrong = (guess - row)[~known]
            squared = (wrong**2).sum()
            squares[at] += float(squared)

    missing = int((~known).sum())
    gaps = max(1, missing * references.shape[0])
    return np.asarray(np.sqrt(squares / gaps), dtype=np.float64)


def shares_of(alone: Floats, others_alone: Floats, together: Floats) -> Floats:
    """A job's row from its pairs (other job, type, 2) with the references; NaN where nothing was
    measured.

    First its own share of its throughput alone with each other job on each type, then the other
    job's share: 1 means that the other job does not slow it down.
    """
    each_alone = np.broadcast_to(alone, others_alone.shape)
    own = _ratio(together[:, :, 0], each_alone)
    other = _ratio(together[:, :, 1], others_alone)
    return np.concatenate((own.ravel(), other.ravel()))


def pairs_of_new(others: Floats, together: Floats, alone: Floats, measured: Floats) -> Floats:
    """A new job's throughputs in pairs with every reference (other job, type, 2), from a few
    measured pairs.

    The references were profiled alone (`others`: job, type) and `together` in pairs (job, other
    job, type, 2), in steps per second. `measured` has that shape, with NaN for unmeasured pairs.
    The new job's throughputs alone help too, because jobs with similar throughputs share alike. A
    job that cannot run alone on a type cannot run there in a pair.
    """
    all_shares = [shares_of(others[i], others, together[i]) for i in range(len(others))]
    shares = np.array(all_shares)
    # Throughputs alone are further columns: logarithms, each with the average weight of a share.
    logs = _logs(others)
    weight = float(np.nanmean(np.nanstd(shares, axis=0)))
    mean = np.nanmean(logs, axis=0)
    spread = np.nanstd(logs, axis=0)
    no_scale = np.zeros_like(spread)
    scale = np.divide(weight, spread, out=no_scale, where=spread > 0)
    own_shares = shares_of(alone, others, measured)
    own_logs = (_logs(alone) - mean) * scale
    row = np.concatenate((own_shares, own_logs))
    scaled_logs = (logs - mean) * scale
    completed, _ = estimate(np.hstack((shares, scaled_logs)), row)
    pair_shares = completed[: shares.shape[1]]
    own, other = pair_shares.reshape(2, *others.shape)
    pairs = np.stack((own * alone, other * others), axis=-1)

    return np.where(np.isnan(measured), pairs, measured)


def _logs(throughputs: Floats) -> Floats:
    """Logarithms; NaN where nothing was measured, or where a job cannot run."""
    unknown = np.full(throughputs.shape, np.nan)
    return np.log(throughputs, out=unknown, where=throughputs > 0)


def _ratio(together: Floats, alone: Floats) -> Floats:
    """Shares; 0 where a job cannot run alone either, NaN where it was not measured."""
    shares = np.divide(together, alone, out=np.zeros(together.shape), where=alone > 0)
    is_unknown = np.isnan(together) | np.isnan(alone)
    return np.where(is_unknown, np.nan, shares)


@dataclass(frozen=True, slots=True)
class SpeedsByOthers:
    """A job's speeds on types that it has not run on, from those of other jobs: the number of
    these, and the mean error of the logarithm on `cells` that were held out, next to that of the
    `expected` speeds."""

    speeds: Mapping[str, float]
    jobs: int
    cells: int
    error: float
    expected_error: float


MIN_JOBS, _MIN_CELLS = 4, 6


def speeds_by_others(
    known: Mapping[str, float], others: Sequence[Mapping[str, float]], expected: Mapping[str, float]
) -> SpeedsByOthers | None:
    """A job's speeds by type, completed by those of at least four other jobs. `expected` are the
    speeds by type that would be assumed of any job. None unless the completed speeds are closer
    than these on at least six held-out ones.

    Jobs' own units differ: rows are ratios to the speed on one type that this job, and most others,
    have run on.
    """
    common = known.keys() & expected.keys()
    bases = sorted(common, key=lambda name: (-sum(name in job for job in others), name))
    if not bases:
        return None

    base = bases[0]
    rows = [job for job in others if base in job and len(job.keys() & expected.keys()) > 1]
    measured_often = (
        kind for kind in expected if kind != base and sum(kind in job for job in rows) > 1
    )
    kinds = sorted(measured_often)
    if len(rows) < MIN_JOBS or all(kind in known for kind in kinds):
        return None

    def ratios(job: Mapping[str, float]) -> Floats:
        per_expected = {
            kind: np.log(speed / expected[kind]) for kind, speed in job.items() if kind in expected
        }
        return np.array([per_expected.get(kind, np.nan) - per_expected[base] for kind in kinds])

    references = np.array([ratios(job) for job in rows])
    own = ratios(known)
    misses = list[float]()
    expected_misses = list[float]()

    for number, row in enumerate(references):
        rest = np.delete(references, number, axis=0)
        seen = ~np.isnan(rest).all(axis=0)
        asked_for = np.isnan(own) & ~np.isnan(row)
        asked = asked_for & seen
        if asked.any():
            others_seen = rest[:, seen]
            asked_row = np.where(np.isnan(own), np.nan, row)
            guess, _ = estimate(others_seen, asked_row[seen])
            misses += (guess[asked[seen]] - row[asked]).tolist()
            expected_misses += row[asked].tolist()

    if len(misses) < _MIN_CELLS:
        return None

    error = float(np.abs(misses).mean())
    expected_error = float(np.abs(expected_misses).mean())
    if error >= expected_error:
        return None

    completed, _ = estimate(references, own)
    scale = known[base] / expected[base]
    speeds = {}
    for kind, ratio in zip(kinds, completed, strict=True):
        if kind not in known:
            expected_speed = scale * expected[kind]
            factor = float(np.exp(ratio))
            speeds[kind] = expected_speed * factor

    return SpeedsByOthers(speeds, len(rows), len(misses), error, expected_error)
