"""Jobs as the published generator draws them."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.lab.gavel.workload import BadWorkload, JobKind, Throughputs, generate


def table() -> Throughputs:
    """Five kinds; the second type is the fastest one, and the last kind cannot run there."""
    kinds = (
        JobKind("x", 1),
        JobKind("y", 1),
        JobKind("x", 2),
        JobKind("x", 4),
        JobKind("x", 8),
        JobKind("z", 1),
    )
    alone = np.array([[1.0, 4.0], [3.0, 5.0], [2.0, 7.0], [3.0, 13.0], [4.0, 25.0], [9.0, 0.0]])
    return Throughputs(("slow", "fast"), kinds, alone, np.zeros((6, 6, 2, 2)))


def test_durations_are_ten_to_the_x_minutes_on_the_reference_type() -> None:
    work = generate(table(), 900, 40_000, seed=3)
    assert work.throughputs.reference == 1
    seconds = work.steps / work.rates[:, 1]
    x = np.log10(seconds / 60)
    # Whole steps: a little less than drawn.
    assert x.min() > 1.5 - 1e-3
    assert x.max() < 4
    assert (x > 3).mean() == pytest.approx(0.2, abs=0.01)
    for low, high in ((1.5, 3.0), (3.0, 4.0)):
        part = x[(x > low) & (x < high)]
        assert part.mean() == pytest.approx((low + high) / 2, abs=0.01)
        assert part.std() == pytest.approx((high - low) / 12**0.5, abs=0.01)


def test_arrivals_are_poisson_and_start_at_zero() -> None:
    gaps = np.diff(generate(table(), 900, 40_000, seed=1).arrival)
    assert gaps.mean() == pytest.approx(900, rel=0.02)
    assert gaps.std() == pytest.approx(900, rel=0.02)
    assert generate(table(), 900, 10, seed=1).arrival[0] == 0
    assert not generate(table(), 0, 10, seed=1).arrival.any()


def test_kinds_are_uniform_among_those_of_a_scale() -> None:
    work = generate(table(), 900, 40_000, seed=1, multiple=True)
    share = np.bincount(work.kind, minlength=6) / 40_000
    assert share == pytest.approx([0.35, 0.35, 0.1, 0.15, 0.05, 0], abs=0.01)
    single = generate(table(), 900, 1000, seed=1)
    assert set(single.scale.tolist()) == {1}


def test_workloads_of_one_seed_are_prefixes_of_each_other() -> None:
    long, short = (generate(table(), 60, count, seed=5, multiple=True) for count in (500, 20))
    for column in ("kind", "steps", "arrival"):
        assert np.array_equal(getattr(long, column)[:20], getattr(short, column))
    other = generate(table(), 60, 20, seed=6, multiple=True)
    assert not np.array_equal(other.steps, short.steps)


def test_deadlines_count_from_the_time_on_the_fastest_type() -> None:
    work = generate(table(), 60, 300, seed=5)
    assert work.alone_seconds() == pytest.approx(work.steps / np.array([4.0, 5.0])[work.kind])


def test_unmeasured_types_and_scales_are_refused() -> None:
    with pytest.raises(
        BadWorkload, match=r"no throughput was measured on 'a100' \(measured: slow, fast\)"
    ):
        table().on(["fast", "a100"])
    small = Throughputs(("v",), (JobKind("x", 1),), np.ones((1, 1)), np.zeros((1, 1, 1, 2)))
    with pytest.raises(BadWorkload, match="no kind of job was measured on 2 workers"):
        generate(small, 1, 100, seed=0, multiple=True)
    assert table().on(["fast"]).alone[:, 0].tolist() == [4, 5, 7, 13, 25, 0]
