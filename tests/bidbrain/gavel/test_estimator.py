"""The estimator against the conditional mean of a Gaussian, exact low-rank rows, and held-out
measurements.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.arrays import Floats
from bidbrain.gavel.estimator import (
    BadFingerprint,
    LowRankModel,
    estimate,
    filled,
    pairs_of_new,
    shares_of,
)
from bidbrain.lab.gavel.workload import JobKind, Throughputs, with_estimated_pairs
from spotctl.lab.gavel.throughputs_file import read_throughputs

SEEDS = st.integers(0, 2**32)


def low_rank(
    rng: np.random.Generator, rows: int, columns: int, rank: int, noise: float = 0.0
) -> Floats:
    exact = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns)) + rng.normal(
        size=columns
    )
    return np.asarray(exact + noise * rng.normal(size=exact.shape), dtype=np.float64)


@given(SEEDS, st.integers(1, 4), st.integers(2, 9))
def test_a_row_is_completed_by_the_conditional_mean(seed: int, rank: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    model = LowRankModel(
        rng.normal(size=columns), rng.normal(size=(columns, rank)), float(rng.uniform(0.1, 2))
    )
    row = rng.normal(size=columns)
    known = rng.random(columns) < 0.5
    covariance = model.directions @ model.directions.T + model.noise * np.eye(columns)
    expected = row.copy()
    if known.any():
        gain = covariance[np.ix_(~known, known)] @ np.linalg.inv(covariance[np.ix_(known, known)])
        expected[~known] = model.mean[~known] + gain @ (row - model.mean)[known]
    else:
        expected = model.mean
    assert model.completed(np.where(known, row, np.nan)) == pytest.approx(expected)


@given(SEEDS, st.integers(1, 3))
def test_rows_that_are_low_rank_are_recovered_from_a_few_entries(seed: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    rows = low_rank(rng, 16, 20, rank)
    # Within the range that the others span, which estimates do not leave.
    row = rng.dirichlet(np.ones(15)) @ rows[:-1]
    known = np.zeros(20, dtype=np.bool_)
    known[rng.choice(20, size=8, replace=False)] = True
    found, chosen = estimate(rows[:-1], np.where(known, row, np.nan))
    assert found == pytest.approx(row, abs=1e-3 * float(np.abs(rows).max()))
    assert chosen >= rank


@given(SEEDS)
def test_measured_entries_stay_and_estimates_stay_in_the_references_range(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = low_rank(rng, 8, 12, 2, noise=0.5)
    known = rng.random(12) < 0.4
    row = 5 * rng.normal(size=12)
    found, _ = estimate(rows, np.where(known, row, np.nan))
    assert (found[known] == row[known]).all()
    assert (found >= rows.min(axis=0))[~known].all()
    assert (found <= rows.max(axis=0))[~known].all()
    order = rng.permutation(8)
    again, _ = estimate(rows[order], np.where(known, row, np.nan))
    assert again == pytest.approx(found)


def test_without_measurements_it_is_the_mean_and_rank_0() -> None:
    rows = low_rank(np.random.default_rng(1), 9, 6, 2, noise=0.2)
    found, rank = estimate(rows, np.full(6, np.nan))
    assert found == pytest.approx(rows.mean(axis=0))
    assert rank == 0


@given(SEEDS)
@settings(max_examples=30)
def test_gaps_of_references_are_filled_from_the_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = low_rank(rng, 30, 8, 1)
    gaps = np.zeros(rows.shape, dtype=np.bool_)
    gaps[np.arange(30), rng.integers(0, 8, size=30)] = True
    found = filled(np.where(gaps, np.nan, rows), 1)
    assert (found[~gaps] == rows[~gaps]).all()
    assert found == pytest.approx(rows, abs=1e-3 * float(np.abs(rows).max()))


@pytest.mark.parametrize(
    ("references", "row", "message"),
    [
        (np.ones((2, 3)), np.ones(3), "at least three references"),
        (np.ones((4, 3)), np.ones(2), "with as many columns"),
        (np.full((4, 3), np.inf), np.ones(3), "is infinite"),
        (np.array([[1.0, np.nan]] * 4), np.ones(2), "column 1: no reference was measured there"),
    ],
)
def test_unusable_rows_are_refused(references: Floats, row: Floats, message: str) -> None:
    with pytest.raises(BadFingerprint, match=message):
        estimate(references, row)


def world(rng: np.random.Generator, jobs: int, types: int) -> tuple[Floats, Floats]:
    """Jobs that differ in one number, the share of a machine they need, which determines how a pair
    shares.
    """
    need = rng.uniform(0.2, 1.0, size=jobs)
    alone = rng.uniform(1, 50, size=(jobs, types))
    total = np.maximum(1.0, need[:, None] + need[None, :])
    together = np.stack(
        (
            np.repeat((1 / total)[:, :, None], types, axis=2) * alone[:, None],
            (1 / total)[:, :, None] * alone[None],
        ),
        axis=-1,
    )
    return alone, together


def test_pairs_of_a_new_job_are_estimated_and_measured_ones_kept() -> None:
    alone, together = world(np.random.default_rng(3), 20, 2)
    truth = together[-1, :-1]
    measured = np.full(truth.shape, np.nan)
    measured[[2, 7, 11], 0] = truth[[2, 7, 11], 0]
    pairs = pairs_of_new(alone[:-1], together[:-1, :-1], alone[-1], measured)
    # Bit for bit, although they were converted to shares and back.
    assert np.array_equal(pairs[[2, 7, 11], 0], truth[[2, 7, 11], 0])
    shares, true_shares = (shares_of(alone[-1], alone[:-1], one) for one in (pairs, truth))
    of_others = [shares_of(alone[i], alone[:-1], together[i, :-1]) for i in range(19)]
    plain = np.abs(np.mean(of_others, axis=0) - true_shares).mean()
    assert np.abs(shares - true_shares).mean() < plain / 3


def test_what_cannot_run_alone_cannot_run_in_a_pair() -> None:
    others, together = world(np.random.default_rng(4), 8, 2)
    alone = np.array([3.0, 0.0])
    pairs = pairs_of_new(others, together, alone, np.full((8, 2, 2), np.nan))
    assert (pairs[:, 1, 0] == 0).all()
    assert (pairs[:, 0] > 0).all()


def believed(jobs: int, measured: int) -> tuple[Throughputs, Throughputs]:
    alone_of_kinds, together_of_kinds = world(np.random.default_rng(7), jobs, 2)
    kinds = (*(JobKind(f"kind {i}", 1) for i in range(jobs)), JobKind("wide", 2))
    alone = np.vstack((alone_of_kinds, [[5.0, 6.0]]))
    together = np.zeros((jobs + 1, jobs + 1, 2, 2))
    together[:jobs, :jobs] = together_of_kinds
    together[1, 2], together[2, 1] = 0.0, 0.0
    together[jobs, jobs] = 2.5
    table = Throughputs(("v", "k"), kinds, alone, together)
    return table, with_estimated_pairs(table, measured, 3)


def test_a_scheduler_believes_measured_pairs_and_estimates_the_others() -> None:
    truth, found = believed(16, 6)
    same = np.asarray(np.isclose(found.together, truth.together, rtol=1e-12).all(axis=3))
    assert same[np.arange(17), np.arange(17)].all()
    # Each of 16 kinds measured 6 of 30 cells, some of them from both sides.
    assert 16 * 6 <= np.count_nonzero(same[:16, :16]) - 32 < 16 * 30
    own = found.together[:16, :16] / truth.alone[:16, None, :, None].repeat(2, axis=3)
    assert np.isfinite(own).all()
    error = np.abs(found.together - truth.together)[~same] / truth.together[~same]
    assert np.median(error) < 0.05
    assert (found.together == found.together.swapaxes(0, 1)[..., ::-1]).all()


def test_impossible_pairs_and_multi_worker_kinds_stay_as_measured() -> None:
    truth, found = believed(16, 6)
    assert (found.together[1, 2] == 0).all()
    assert (found.together[16] == truth.together[16]).all()
    assert (found.alone == truth.alone).all()


@pytest.mark.parametrize(("jobs", "measured"), [(3, 1), (8, 0), (8, 15)])
def test_too_few_kinds_or_pairs_to_estimate_from_are_refused(jobs: int, measured: int) -> None:
    with pytest.raises(BadFingerprint, match="at least four kinds that run on every type"):
        believed(jobs, measured)


@pytest.mark.parametrize("table", ["simulation", "physical_cluster"])
def test_estimates_of_held_out_measurements_beat_the_mean(shared_data: Path, table: str) -> None:
    """Each job is new in turn; eight of its pairs are measured."""
    throughputs = read_throughputs(shared_data / "gavel" / f"{table}_throughputs.json.gz").on(
        ("v100", "p100", "k80")
    )
    single = [
        i
        for i, kind in enumerate(throughputs.kinds)
        if kind.scale == 1 and (throughputs.alone[i] > 0).all()
    ]
    alone, together = throughputs.alone[single], throughputs.together[np.ix_(single, single)]
    ours, plain = [], []
    for new in range(len(single)):
        kept = np.delete(np.arange(len(single)), new)
        others, pairs_of_others = alone[kept], together[np.ix_(kept, kept)]
        truth = together[new, kept]
        cells = np.random.default_rng(new).choice(kept.size * 3, size=8, replace=False)
        measured = np.full(truth.shape, np.nan)
        measured.reshape(-1, 2)[cells] = truth.reshape(-1, 2)[cells]
        pairs = pairs_of_new(others, pairs_of_others, alone[new], measured)
        hidden = np.isnan(np.concatenate([measured[:, :, side].ravel() for side in (0, 1)]))
        shares, guess = (shares_of(alone[new], others, one) for one in (truth, pairs))
        ours.append(np.abs(guess - shares)[hidden].mean())
        of_others = [shares_of(others[i], others, pairs_of_others[i]) for i in range(len(others))]
        plain.append(np.abs(np.mean(of_others, axis=0) - shares)[hidden].mean())
    assert np.mean(ours) < np.mean(plain) / 1.25
