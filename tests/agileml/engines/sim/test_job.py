"""Jobs in the `sim` engine under chaos: the model, the counters and the log are reproducible."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.core.clocks import clocks_done_again
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.errors import BadTrainer, TrainerFailed
from agileml.iteration_log import redone_fields
from agileml.job import Convergence, Stopping, Trained, TrainingJob
from agileml.policies.stage import ClockSums, Thresholds
from agileml.reference import model_digest, run
from agileml.roles.node import JobSettings
from agileml.runtime.results import Clocks
from tests.agileml.toys import Scripted

CLOCKS = 20
SMALL = TrainerSource("tests.agileml.toys:Decades", {"lengths": (2,) * 16, "chunk": 1})
UPDATES = CLOCKS * 16 * 2 * 8
MACHINES = Machines(seconds_per_item=0.01, loading=0.1)
"""A clock on four of them takes 80 ms."""

EVERYTHING = (
    "at clock 3 evict half warn 1s; at clock 6 kill 1; at clock 8 join 3; at clock 10 kill "
    "controller;"
    " at clock 12 kill 1 reliable; at clock 14 evict all warn 10ms; every 4 clocks join 1 prob 0.7"
)


def job(
    source: TrainerSource = SMALL,
    nodes: tuple[int, int] = (1, 3),
    **given: Any,  # noqa: ANN401
) -> TrainingJob:
    settings = JobSettings(
        partitions=8, deterministic=True, loss_sample=given.pop("loss_sample", 32)
    )
    return TrainingJob(
        source, *nodes, given.pop("stopping", Stopping(clocks=CLOCKS)), settings, **given
    )


def played(
    chaos: str, asked: TrainingJob | None = None, seed: int = 0
) -> tuple[Trained, list[Iteration]]:
    log: list[Iteration] = []
    return SimulatedEngine(MACHINES).run(
        asked or job(), FaultSchedule(Chaos.parse(chaos, seed)), log.append
    ), log


@cache
def undisturbed() -> str:
    return model_digest(run(SMALL.load(), CLOCKS, seed=0, deterministic=True, partitions=8))


def hold(trained: Trained) -> None:
    assert trained.clocks == CLOCKS
    assert model_digest(trained.model) == undisturbed()
    counters = trained.counters
    assert (counters.sent, counters.applied, counters.lost, counters.doubled) == (
        UPDATES,
        UPDATES,
        0,
        0,
    )


def test_the_model_is_the_same_after_every_kind_of_fault() -> None:
    trained, log = played(EVERYTHING)
    hold(trained)
    assert trained.evictions >= 2
    assert trained.failures >= 2
    assert [one.clock for one in log] == list(range(1, CLOCKS + 1))
    events = [event for one in log[1:] for event in one.events]
    for word in ("warned", "left", "lost", "ready", "controller"):
        assert any(word in event for event in events), word
    assert {one.stage for one in log} >= {1, 2}


def test_the_same_seeds_give_the_same_log() -> None:
    first, again, other = (
        played(EVERYTHING, seed=3)[1],
        played(EVERYTHING, seed=3)[1],
        played(EVERYTHING, seed=4)[1],
    )
    assert first == again != other


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(16))
def test_random_faults_do_not_change_the_model(seed: int) -> None:
    chance = random.Random(seed)
    nodes = chance.choice([(1, 3), (2, 3), (1, 1), (1, 7), (3, 2)])
    thresholds = Thresholds(1, chance.choice([3, 15]))
    rules = [
        f"{moment(chance)} {deed(chance)} prob 0.{chance.randint(3, 9)}"
        for _ in range(chance.randint(1, 6))
    ]
    text = "; ".join([*rules, "every 4 clocks join 1"])
    asked = job(
        nodes=nodes, thresholds=thresholds, checkpoint_every=chance.choice([0, 3]), loss_sample=0
    )
    hold(played(text, asked, seed)[0])


def moment(chance: random.Random) -> str:
    clock, seconds = chance.randint(3, 19), chance.uniform(0.3, 3)
    return chance.choice(
        [
            f"at clock {clock}",
            f"every {clock} clocks",
            f"at {seconds:.3f}s",
            f"every {seconds:.3f}s",
        ]
    )


def deed(chance: random.Random) -> str:
    whom, kind = chance.choice(["1", "2", "half", "all"]), chance.choice(["", "", " reliable"])
    warning = chance.choice(["0s", "50ms", "1s", "10s"])
    return chance.choice(
        [
            f"evict {whom} warn {warning}{kind}",
            f"kill {whom}{kind}",
            f"join 2{kind}",
            "kill controller",
        ]
    )


@pytest.mark.parametrize(
    "chaos",
    [
        "at 100ms evict all warn 1s",
        "at 0s evict all warn 1s; at 50ms kill 1 reliable",
        "at 50ms evict 1 reliable warn 10ms; at 99ms kill all",
        "at 50ms evict all warn 0s; at 100ms kill controller",
        "at 100ms kill controller; at 100ms evict all warn 1s; at 200ms join 1; at 250ms evict all "
        "warn 10ms",
    ],
)
def test_faults_before_the_first_clock_do_not_stall_the_job(chaos: str) -> None:
    hold(played(chaos, job(nodes=(1, 1)))[0])


def test_a_restarted_controller_survives_the_loss_of_all_reliable_nodes() -> None:
    hold(
        played(
            "every 3 clocks kill controller; every 4 clocks kill all reliable; every 5 clocks kill "
            "half"
        )[0]
    )


def test_what_a_node_had_done_of_an_unfinished_clock_counts_as_redone() -> None:
    # Each of two nodes does a chunk in 0.1 s, and 16 in a clock; one has done eight at its last
    # heartbeat, after 1 s.
    log: list[Iteration] = []
    faults = FaultSchedule(Chaos.parse("at 1050ms kill 1"))
    hold(
        SimulatedEngine(Machines(seconds_per_item=0.1, loading=0.1)).run(
            job(nodes=(1, 1)), faults, log.append
        )
    )
    assert [one.redone for one in log[1:]] == [0] * (CLOCKS - 1)
    assert log[0].redone == 8


def test_a_lost_reliable_node_is_replaced() -> None:
    trained, log = played(
        "at clock 5 kill 1 reliable; at clock 12 evict 1 reliable warn 100ms", job(nodes=(2, 2))
    )
    hold(trained)
    assert [one.reliable for one in log[5:]].count(1) < 8
    assert log[-1].reliable == 2


@pytest.mark.parametrize(
    "chaos",
    [
        "at clock 5 kill all",
        "at clock 5 evict all warn 50ms; at clock 12 join 2; at clock 14 kill all",
        "at clock 4 kill all; at clock 4 kill controller; at clock 9 join 3; every 6 clocks kill "
        "half",
        "at clock 5 evict 2 warn 10s; at clock 8 join 2; at clock 11 kill 1",
    ],
)
def test_without_reliable_nodes_the_model_comes_back_from_checkpoints(chaos: str) -> None:
    trained, log = played(chaos, job(nodes=(0, 3), checkpoint_every=3))
    hold(trained)
    assert {(one.reliable, one.stage) for one in log} == {(0, 3)}


def test_finished_clocks_that_are_done_again_are_named() -> None:
    trained, log = played("at clock 8 kill all", job(nodes=(0, 3), checkpoint_every=3))
    hold(trained)
    events = [event for one in log for event in one.events]
    ((first, last),) = clocks_done_again(events)
    assert first in (4, 7)
    assert last == 8
    assert redone_fields(events) == {"redone_clocks": [[first, 8]]}
    assert f"epoch 2 from version {first - 1}" in events


# -- when it ends ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stopping", "least", "most"),
    [
        (Stopping(seconds=100.5), 3, 40),
        (Stopping(loss=0.3), 3, 30),
        (Stopping(converged=Convergence(0.05, 3)), 5, 60),
        (Stopping(clocks=2, seconds=1e6), 2, 2),
    ],
)
def test_a_job_ends_when_its_criterion_holds(stopping: Stopping, least: int, most: int) -> None:
    source = TrainerSource("mf", {"ratings": 8000, "users": 200, "items": 100, "rank": 4})
    trained, log = played("", job(source, stopping=stopping))
    # The clock in which it is noticed, and those that had begun by then
    ended = len(log)
    assert least <= ended <= most
    assert trained.clocks == ended
    if stopping.seconds == 100.5:
        assert (
            sum(one.seconds for one in log[: ended - 2]) < 100.5 <= sum(one.seconds for one in log)
        )
    if stopping.loss is not None:
        losses = [one.loss for one in log if one.loss is not None]
        assert min(losses[:-2]) > stopping.loss >= min(losses)


# -- trainers that do not keep the contract --------------------------------------------------------


def breaking(made: str) -> TrainerSource:
    return TrainerSource("tests.agileml.engines.sim.test_job:bad", {"made": made})


def bad(made: str) -> Scripted:
    """A trainer that goes wrong in clock 3."""

    def step(_shard: object, _lo: int, _hi: int, params: Any, clock: int, _rng: object) -> None:  # noqa: ANN401
        if clock == 3:
            wrong: dict[str, Any] = {"nan": [np.nan] * 4, "shape": [0.0] * 3, "raise": None}
            params.update("w", None, np.array(wrong[made] or 1 / 0))

    def loss(params: Any, _sample: object) -> float:  # noqa: ANN401
        return float(params.read("w").sum())

    return Scripted(step=step, loss=loss)


@pytest.mark.parametrize(
    ("made", "kind", "message"),
    [
        ("nan", BadTrainer, "scripted, clock 3, parameter 'w'.*NaN"),
        ("shape", BadTrainer, r"scripted, clock 3, parameter 'w'.*shape"),
        ("raise", TrainerFailed, "scripted, clock 3, shard 0, items 0 to 1: ZeroDivisionError"),
    ],
)
def test_a_trainer_that_breaks_the_contract_stops_the_job(
    made: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        played("", job(breaking(made)))


# -- repeated clocks -------------------------------------------------------------------------------


def test_a_repeated_clock_keeps_its_events_for_the_next() -> None:
    told: list[Iteration] = []
    clocks = Clocks(told.append)
    accepted = [
        clocks.accept(iteration(*given))
        for given in ((1, "a"), (2, "b"), (2, "c"), (1, "d"), (3, "e"), (4, "f"))
    ]
    assert accepted == [True, True, False, False, True, True]
    assert [(one.clock, one.events) for one in told] == [
        (1, ("a",)),
        (2, ("b",)),
        (3, ("c", "d", "e")),
        (4, ("f",)),
    ]
    assert clocks.last == 4


def iteration(clock: int, event: str) -> Iteration:
    return Iteration(clock, 1.0, 1, 1, 1, ClockSums(), 0, (event,))
