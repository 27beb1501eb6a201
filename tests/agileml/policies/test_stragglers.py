"""Whole jobs with measures against stragglers: the same models, sooner, and what the log says."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from agileml import train
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos
from agileml.engines.sim import SimulatedEngine
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from agileml.errors import BadArgument, BadTrainer
from agileml.iteration_log import line_of, straggler_fields
from agileml.job import Trained
from agileml.params.layout import Params
from agileml.policies.stragglers import Stragglers
from agileml.reference import model_digest, replay
from agileml.slowdowns import Replay
from agileml.trainer import ParamReader, ParamView, Sample
from agileml.work import Accepted
from tests.agileml.straggler_faults import played
from tests.agileml.toys import Decades, Largest

SLOW = "slow worker 5% by 400%"


class Counting(Decades):
    """Counts, which cannot be multiplied."""

    def init(self, rng: np.random.Generator) -> Params:
        return {**super().init(rng), "counts": np.zeros((2, 2), np.int64)}


def trained(
    stragglers: str | Stragglers, chaos: str = SLOW, slack: int = 0, items: int = 20, **options: int
) -> tuple[Trained, list[Iteration]]:
    log: list[Iteration] = []
    done = train(
        Decades(lengths=(items,) * 16, chunk=1),
        "1+7",
        SimulatedEngine(Machines(seconds_per_item=0.01)),
        clocks=6,
        chaos=chaos,
        listener=log.append,
        deterministic=slack == 0,
        slack=slack,
        stage=1,
        stragglers=stragglers,
        **options,  # type: ignore[arg-type]
    )
    return done, log


def seconds(log: list[Iteration]) -> float:
    return sum(iteration.seconds for iteration in log)


def test_lent_work_gives_the_same_model_sooner() -> None:
    (plain, slowly), (helped, sooner) = trained(""), trained("reassign")
    assert model_digest(plain.model) == model_digest(helped.model)
    assert plain.loss == helped.loss
    assert seconds(sooner) < 0.75 * seconds(slowly)
    fields = straggler_fields(sooner)
    assert 0 < fields["reassigned_items"] < 6 * 320
    assert fields["helped_ms"] > 0
    assert any("stragglers" in line_of(iteration) for iteration in sooner)
    assert not any("stragglers" in line_of(iteration) for iteration in slowly)


def test_uneven_work_is_evened_out() -> None:
    (_, even), (_, uneven), (_, helped) = (
        trained("", ""), trained("", "uneven 75/25"), trained("reassign", "uneven 75/25", slack=1)
    )  # fmt: skip
    assert seconds(uneven) > 1.3 * seconds(even)
    assert seconds(helped) < 1.15 * seconds(even)


def test_the_local_engine_slows_workers_and_gives_the_same_model() -> None:
    models = [
        train(
            Decades(chunk=2),
            "1+2",
            "local",
            clocks=3,
            deterministic=True,
            stage=1,
            chaos=chaos,
            stragglers=stragglers,
        ).model
        for chaos, stragglers in (("", ""), ("power law 4; slow worker 20% by 100%", "reassign"))
    ]
    assert model_digest(models[0]) == model_digest(models[1])


def test_a_slow_server_needs_a_simulated_network() -> None:
    with pytest.raises(BadArgument, match="slow server"):
        train(Decades(), "1+1", "local", clocks=1, chaos="slow server 1 to 10%")


def test_clocks_end_without_late_work_and_the_log_replays_to_the_same_model() -> None:
    (_, whole), (done, shorter) = (
        trained(measure, "power law 3", items=4) for measure in ("", Stragglers(backup_workers=2))
    )
    assert seconds(shorter) < 0.8 * seconds(whole)
    assert done.counters.applied == done.counters.sent < 8 * 6 * 64
    fields = straggler_fields(shorter)
    assert fields["waited_for"] == [6] * 6
    assert (
        fields["dropped_chunks"]
        == sum(64 - sum(b - a for _, a, b in one.accepted) for one in shorter)
        > 0
    )
    log = [Accepted(one.clock, one.accepted) for one in shorter]
    again = replay(Decades(lengths=(4,) * 16, chunk=1), log, seed=0, partitions=8)
    assert model_digest(again) == model_digest(done.model)


def test_backup_workers_of_real_processes_replay_to_the_same_model() -> None:
    log: list[Iteration] = []
    trainer = Decades(lengths=(4,) * 8, chunk=1)
    done = train(
        trainer, "1+3", "local", clocks=4, deterministic=True, stage=1, chaos="power law 3", listener=log.append,
        stragglers=Stragglers(reassign=True, backup_workers=1),
    )  # fmt: skip
    assert straggler_fields(log)["waited_for"] == [3] * 4
    again = replay(
        trainer, [Accepted(one.clock, one.accepted) for one in log], seed=0, partitions=8
    )
    assert model_digest(again) == model_digest(done.model)
    assert done.counters.lost == done.counters.doubled == 0


class Level:
    """Learns the mean of numbers; a shard has only its own number."""

    name = "level"
    chunk = 1

    def init(self, rng: np.random.Generator) -> Params:
        del rng
        return {"w": np.zeros((1, 1))}

    def shards(self) -> list[range]:
        return [range(number, number + 4) for number in range(16)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        del clock, rng
        params.update("w", None, (hi - lo) * 0.02 / 64 * (shard.start - params.read("w")))

    def loss(self, params: ParamReader, sample: Sample) -> float:
        del sample
        return float(params.read("w")[0, 0])


def level(
    measure: str | Stragglers, slow: float, clocks: int = 320
) -> tuple[Trained, list[Iteration]]:
    """A job in which one of four workers is always slow."""
    log: list[Iteration] = []
    chaos = Chaos(slowdowns=(Replay(((1.0,), (1.0,), (1.0,), (slow,))),))
    done = train(
        Level(), "1+3", SimulatedEngine(Machines(seconds_per_item=0.01)), clocks=clocks, chaos=chaos, stage=1,
        listener=log.append, stragglers=measure, partitions=1, deterministic=True,
    )  # fmt: skip
    return done, log


@pytest.mark.parametrize("backups", [1, True])
def test_a_machine_that_is_always_slow_costs_all_shards_alike(backups: int) -> None:
    """Else its shards would not count, and the model would be the mean of the others: 7 instead of
    7.5.
    """
    done, log = level(Stragglers(backup_workers=backups), slow=3.0)
    chunks = [0] * 16
    for clock in log:
        for shard, first, last in clock.accepted:
            chunks[shard] += last - first
    assert straggler_fields(log)["dropped_chunks"] > 0
    assert min(chunks) > 0.95 * max(chunks)
    assert abs(done.model["w"][0, 0] - 7.5) < 0.05
    fields = straggler_fields(log)
    assert 0.95 < fields["least_counted"] <= 1 <= fields["most_counted"] < 1.05
    assert not any("warning" in event for clock in log for event in clock.events)


def test_as_long_as_nothing_is_left_out_backup_workers_change_no_bit() -> None:
    (plain, _), (watched, log) = (
        level(measure, slow=1.0, clocks=80) for measure in ("", "backup-workers=auto")
    )
    assert not straggler_fields(log)["dropped_chunks"]
    assert model_digest(plain.model) == model_digest(watched.model)


@pytest.mark.parametrize(
    ("kind", "words"), [(Largest, "updates that are added, not 'max'"), (Counting, "not int64")]
)
def test_backup_workers_need_updates_whose_mean_makes_sense(
    kind: type[Decades], words: str
) -> None:
    with pytest.raises(BadTrainer, match=words):
        train(kind(), "1+1", "sim", clocks=1, stragglers="backup-workers=auto")


def test_backup_workers_need_workers_that_wait() -> None:
    with pytest.raises(BadArgument, match="use slack 0"):
        train(Decades(), "1+1", "sim", clocks=1, slack=1, stragglers="backup-workers=auto")


@pytest.mark.parametrize(
    "wrong",
    [
        "reasign",
        "reassign,,",
        3,
        {"balance": True},
        {"reassign": 2},
        "balance=auto",
        "backup-workers=some",
        "backup-workers=-1",
        "backup-workers",
        "backup-workers=2",
        {"backup_workers": True},
        {"backup_workers": 2},
    ],
)
def test_unknown_measures_are_refused(wrong: object) -> None:
    with pytest.raises(BadArgument, match="stragglers"):
        train(Decades(), "1+1", "sim", clocks=1, stragglers=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 5, 7, 11])
def test_random_faults_among_random_stragglers(seed: int) -> None:
    assert not played(seed).why


class Wide:
    """Updates everything, so that communication takes longer than work."""

    name = "wide"
    chunk = 4

    def init(self, rng: np.random.Generator) -> Params:
        del rng
        return {"w": np.zeros((400, 16), np.float32)}

    def shards(self) -> list[range]:
        return [range(4 * number, 4 * number + 4) for number in range(8)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        del rng
        params.update(
            "w", None, np.float32(1e-3) * (params.read("w") + np.float32(shard[lo] + hi + clock))
        )

    def loss(self, params: ParamReader, sample: Sample) -> float:
        del params, sample
        return 1.0


def test_partitions_leave_a_slow_server_and_the_model_stays() -> None:
    engine = SimulatedEngine(Machines(network=Network(bytes_per_second=2e5)))
    logs: dict[str, list[Iteration]] = {"": [], "balance": []}
    models = [
        train(
            Wide(),
            "4+4",
            engine,
            clocks=12,
            chaos="slow server 1 to 10%",
            listener=logs[stragglers].append,
            deterministic=True,
            stage=1,
            stragglers=stragglers,
            partitions=40,
            loss_sample=0,
        ).model
        for stragglers in logs
    ]
    assert model_digest(models[0]) == model_digest(models[1])
    static, balanced = (median(one.seconds for one in log[6:]) for log in logs.values())
    assert static > 3 * balanced
    assert straggler_fields(logs["balance"])["moved_bytes"] > 0
    assert any(
        "partitions move to other servers" in event
        for one in logs["balance"]
        for event in one.events
    )


@pytest.fixture(scope="module")
def usually_lent() -> tuple[str, float]:
    """The model of a training that lends with the default settings, however they are written."""
    usual = lent(True)
    assert lent({}) == usual
    return usual


def lent(settings: object) -> tuple[str, float]:
    """The model of a job that lends with these settings, and how long it takes."""
    log: list[Iteration] = []
    done = train(
        "mlr",
        "2+4",
        "sim",
        clocks=6,
        chaos="slow worker 5% by 300%",
        deterministic=True,
        stragglers={"reassign": settings},
        listener=log.append,
    )
    return model_digest(done.model), sum(one.seconds for one in log)


@pytest.mark.parametrize(
    "setting", [{"helpers": 1}, {"trigger": 50.0}, {"follow_up": 8.0}, {"report_at": 0.99}]
)
def test_the_settings_of_lending_change_what_is_lent_and_not_the_model(
    setting: dict[str, float], usually_lent: tuple[str, float]
) -> None:
    model, seconds = lent(setting)
    assert model == usually_lent[0]
    assert seconds != usually_lent[1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"triger": 1},
            "stragglers: reassign: unknown setting 'triger'; choose from helpers, report_at, "
            "trigger",
        ),
        ({"helpers": 0}, "stragglers: reassign: helpers is 0"),
        ({"report_at": 2}, "stragglers: reassign: report_at is 2"),
    ],
)
def test_settings_of_lending_that_make_no_sense_are_refused(
    setting: dict[str, float], message: str
) -> None:
    with pytest.raises(BadArgument, match=message):
        train("mlr", engine="sim", stragglers={"reassign": setting})
