"""Patterns of slow machines: what they do to a node's work, and the words of a chaos spec."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from agileml.engines.chaos import Chaos
from agileml.errors import BadArgument
from agileml.slowdowns import (
    Disrupt,
    PowerLaw,
    Replay,
    Slowdown,
    Slowness,
    SlowServer,
    SlowWorker,
    Uneven,
)

TRACES = Path(__file__).parents[3] / "shared/data/stragglers/alibaba_job_1_norm.csv.gz"


def clock_times(
    slowdown: Slowdown, node: str = "t1", clocks: int = 400, seed: int = 0
) -> list[float]:
    """The time of each clock of 20 chunks of 0.05 s, relative to its usual time."""
    slowness, now, took = Slowness([slowdown], seed, node), 0.0, []
    for clock in range(1, clocks + 1):
        began = now
        for _ in range(20):
            now += 0.05 * slowness.factor(clock, 0.05, now)
        took.append(now - began)
    return took


def test_the_words_of_a_chaos_spec() -> None:
    text = (
        "slow worker 1% by 200%; DISRUPT 20% every 20s by 2x; power law 7; uneven 75/25; at 3s "
        "kill 1;"
    )
    chaos = Chaos.parse(text + "slow server 1 to 10%; slow server 2 to 50% until 1min")
    assert len(chaos.rules) == 1
    assert chaos.slowdowns == (
        SlowWorker(0.01, 2.0),
        Disrupt(0.2, 20.0, 2.0),
        PowerLaw(7.0),
        Uneven(0.75),
        SlowServer(1, 0.1, inf),
        SlowServer(2, 0.5, 60.0),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow disk", "character 6: found 'disk', expected worker or server"),
        (
            "slow worker 1 by 200%",
            "character 13: found '1', expected the chance at each tenth of a clock",
        ),
        ("slow worker 101% by 200%", "character 13: found '101%', expected at most 100%"),
        ("slow server 1 to 0%", "character 18: found '0%', expected more than 0%"),
        ("disrupt 20% every 0s by 2x", "found '0s', expected a period above 0"),
        ("disrupt 20% every 20s by 2", "found '2', expected how much slower they get, such as 2x"),
        ("power law 2", "found '2', expected an exponent above 2"),
        ("uneven 75/30", "found '75/30', expected two shares that make 100"),
        ("replay", "found the end, expected the file with the times of workers"),
        ("replay missing.csv", "replay missing.csv: No such file or directory"),
    ],
)
def test_words_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadArgument) as caught:
        Chaos.parse(text)
    assert message in str(caught.value)


def test_a_slow_worker_is_slow_for_up_to_two_clocks() -> None:
    times = clock_times(SlowWorker(0.01, 4.0))
    # Ten times a clock, it becomes slow with a chance of 1%: for one clock on average, in which it
    # does a fifth.
    assert 1.05 < sum(times) / len(times) < 1.25
    assert max(times) <= 5.0
    assert sum(took == pytest.approx(1.0) for took in times) > len(times) / 2
    assert clock_times(SlowWorker(0.01, 0.0)) == pytest.approx([1.0] * 400)


def test_a_disrupted_machine_is_slow_for_whole_periods() -> None:
    times = clock_times(Disrupt(0.2, 2.0, 1.0))
    assert 0.05 < sum(took > 1.9 for took in times) / len(times) < 0.4


def test_a_power_law_with_a_smaller_exponent_delays_more() -> None:
    mild, strong = (sum(clock_times(PowerLaw(alpha), clocks=2000)) / 2000 for alpha in (11.0, 4.0))
    assert mild == pytest.approx(10 / 9, rel=0.02)
    assert strong == pytest.approx(3 / 2, rel=0.05)


def test_two_nodes_differ_and_a_seed_repeats() -> None:
    pattern = PowerLaw(4.0)
    assert clock_times(pattern, "t1") == clock_times(pattern, "t1")
    assert clock_times(pattern, "t1") != clock_times(pattern, "t2")
    assert clock_times(pattern, "t1") != clock_times(pattern, "t1", seed=1)


def test_recorded_times_are_relative_to_usual_ones(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    rows = [
        f"{worker},{time},{100 * (1 + (worker == 1 and time == 3))}"
        for worker in range(2)
        for time in range(5)
    ]
    path.write_text("\n".join(["worker,time,batch_time_norm", *rows]))
    assert Replay.read(path).factors == ((1.0,) * 5, (1.0, 1.0, 1.0, 2.0, 1.0))
    path.write_text("worker,time\n1,2\n")
    with pytest.raises(
        BadArgument, match="no table with the numbers worker, time and batch_time_norm"
    ):
        Replay.read(path)


@pytest.mark.skipif(not TRACES.exists(), reason="the recorded times are not here")
def test_the_recorded_times_of_a_production_job() -> None:
    factors = Replay.read(TRACES).factors
    assert (len(factors), len(factors[0])) == (10, 300)
    assert max(max(times) for times in factors) > 1.5
