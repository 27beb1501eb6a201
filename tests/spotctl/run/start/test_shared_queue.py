"""Launched jobs under one quota: rounds of their queue, decided once by whichever process comes
first, and orders that never exceed the quota."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import JobQueue, QueueJob, QueueQuota, QueueRound, QueueTerms, QueueUser
from bidbrain.strategies.base import Strategy
from bidbrain.strategies.standard import Standard
from pricing_data.units import HOUR, SECOND
from spotctl.home.errors import BadRequest
from spotctl.home.quotas import quotas_from
from spotctl.log import events as ev
from spotctl.log.outcomes import DONE
from spotctl.log.queue import LOCAL, JobJoined
from spotctl.log.store import EventLog
from spotctl.run.start import shared_queue
from spotctl.run.start.shared_queue import SharedQueue
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from tests.spotctl.run.start.conftest import QUOTAS, Home
from tests.spotctl.run.worlds import (
    LEASE_TIMES,
    RUN,
    START,
    TARIFF,
    environment,
    life,
    terms,
)

KIND = "local/sim-east/c4.xlarge"
QUOTA = QueueQuota("local/sim-east/c4", 16.0, {KIND: 4.0})


def joined(
    name: str,
    work: float = 10.0,
    most: int = 4,
    quota: QueueQuota = QUOTA,
    *,
    interruptible: bool = False,
) -> JobJoined:
    job = QueueJob(name, {KIND: 1.0}, 0.0, 0.0, work=work, most=most, interruptible=interruptible)
    return JobJoined(job, (quota,), {"local/sim-east/c4 on demand": 4}, clocks=100)


def parts(amount: int, on_demand: int) -> Mapping[str, int]:
    return {"local/sim-east/c4": amount, "local/sim-east/c4 on demand": on_demand}


def test_a_job_that_ends_leaves_its_part_to_the_others(home: Home) -> None:
    """Also to the last one of a queue, which begins when one of the others ends (a quota of four
    machines).
    """
    home.attend("p", "q", "r")
    queue = home.queue()
    queue.join([joined("p", 1.0), joined("q", 2.0), joined("r", 50.0)])
    assert queue.parts("p") == parts(16, 4)
    assert queue.parts("q") is queue.parts("r") is None
    assert queue.ahead("r") == ("p", "q")
    queue.leave("p")
    assert home.queue().parts("q") == parts(16, 4)
    queue.leave("q")
    assert home.queue().parts("r") == parts(16, 8)


def test_a_run_grows_by_what_another_leaves(home: Home) -> None:
    home.attend("p", "q")
    queue = home.queue()
    queue.join([joined("p", 1.0, most=2), joined("q", 2.0)])
    assert (queue.parts("p"), queue.parts("q")) == (parts(8, 4), parts(8, 4))
    queue.leave("p")
    assert queue.parts("q") == parts(16, 8)


def test_processes_that_decide_at_the_same_time_carry_out_one_round(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has read the same rows when the other decides, and their clocks are 90 s apart."""
    home.attend("p", "q")
    home.queue().join([joined("p"), joined("q")])
    both, made = Barrier(2, timeout=60), list[JobQueue]()

    def decided(queue: JobQueue, previous: QueueRound | None = None) -> QueueRound:
        made.append(queue)
        both.wait()
        # The one whose clock is ahead prefers the other job.
        late = queue.now > START / SECOND
        jobs = tuple(
            replace(job, weight=2.0 if late and job.name == "q" else job.weight)
            for job in queue.jobs
        )
        return next_round(replace(queue, jobs=jobs), previous)

    monkeypatch.setattr(shared_queue, "next_round", decided)
    queues = [
        SharedQueue(home.settings, LOCAL, clock)
        for clock in (lambda: START, lambda: START + 90 * SECOND)
    ]
    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(lambda queue: [queue.parts(name) for name in ("p", "q")], queues))
    assert len(made) == 2
    assert seen[0] == seen[1]
    assert sorted(map(str, seen[0])) == sorted(map(str, [None, parts(16, 4)]))


def test_a_dead_launchers_machines_count_until_their_leases_end(home: Home) -> None:
    home.attend("p", "q")
    queue = home.queue()
    queue.join([joined("p", 1.0), joined("q", 2.0)])
    assert queue.parts("p") is not None
    home.begins("p", 4)
    home.leave("p")
    assert queue.parts("q") is None
    home.now += LEASE_TIMES.lease - SECOND
    assert queue.parts("q") is None
    home.now += SECOND
    assert queue.parts("q") == parts(16, 4)
    # The job is still in the queue: it has its time, and its turn once somebody resumes it.
    home.attend("p")
    assert queue.parts("p") is None
    queue.leave("q")
    assert queue.parts("p") == parts(16, 8)


def test_a_job_whose_launcher_died_while_it_waited_is_passed_over(home: Home) -> None:
    home.attend("p", "q", "r")
    queue = home.queue()
    queue.join([joined("p", 1.0), joined("q", 2.0), joined("r", 3.0)])
    home.leave("q")
    queue.leave("p")
    assert queue.parts("r") == parts(16, 8 - 4)


def test_machines_outside_of_the_queue_count(home: Home) -> None:
    """A night has a fixed part. A job was planned with what the night leaves, and gets the rest in
    the first round after the night's end."""
    home.begins("night", 3)
    home.attend("p")
    queue = home.queue()
    queue.join([joined("p", quota=replace(QUOTA, amount=4.0))])
    assert queue.parts("p") == parts(4, 8)
    with EventLog(home.paths.log) as log:
        Journal(log, "night-1", lambda: home.now).write(ev.RunEnded(DONE, "", 0, {}))
    home.now += 360 * SECOND
    assert queue.parts("p") == parts(16, 8)


def test_other_quotas_in_one_queue_are_refused(home: Home) -> None:
    home.attend("p")
    home.queue().join([joined("p")])
    other = replace(home.settings, quotas=quotas_from("local/sim-east/c4=8"))
    with pytest.raises(
        BadRequest, match="quota local/sim-east/c4 is 8 here, but job p was launched with 16"
    ):
        home.queue(other).join([joined("q", quota=replace(QUOTA, amount=8.0))])
    home.leave("p")
    home.queue(other).join([joined("q", quota=replace(QUOTA, amount=8.0))])


def test_a_job_is_as_long_as_what_is_left_of_it(home: Home) -> None:
    """The next round of a run that has done most of its work is decided by the rest."""
    home.attend("p", "q")
    queue = home.queue()
    queue.join([joined("p", 40.0, most=2)])
    assert queue.parts("p") is not None
    home.begins("p", 2)
    with EventLog(home.paths.log) as log:
        Journal(log, "p-1", lambda: home.now).write(ev.Progressed(75, None, 2))
    queue.join([joined("q", 2.0)])
    assert queue.parts("q") is not None
    assert {job.name: job.work for job in home.last_round().queue.jobs} == {
        "p": pytest.approx(10.0),
        "q": 2.0,
    }


def test_the_speed_of_a_training_is_measured_by_its_clocks(home: Home) -> None:
    """Four machines that do a quarter of the work that was planned; the next round knows it. So
    does one of a training of unknown length."""
    for name, work in (("p", 40.0), ("r", None)):
        home.attend(name)
        queue = home.queue()
        queue.join([replace(joined(name, 1.0), job=replace(joined(name).job, work=work))])
        assert queue.parts(name) is not None
        home.begins(name, 4)
        with EventLog(home.paths.log) as log:
            journal = Journal(log, f"{name}-1", lambda: home.now)
            ready = tuple(ev.Moment(f"{name}-{number}", home.now) for number in range(4))
            journal.write(ev.Progressed(1, None, 2, ready=ready))
            home.now += HOUR
            journal.write(ev.Progressed(25, None, 2))
        home.attend("q")
        queue.join([joined("q", 2.0)])
        queue.parts("q")
        measured = next(job for job in home.last_round().queue.jobs if job.name == name)
        if work is None:
            # A quarter of its clocks took four machine-hours.
            assert measured.work == pytest.approx(12.0, rel=0.05)
            assert measured.rates[KIND] == 1.0
        else:
            assert measured.rates[KIND] == pytest.approx(2.5, rel=0.05)
        for gone in (name, "q"):
            queue.leave(gone)
            home.leave(gone)


def test_other_terms_in_one_queue_are_refused(home: Home) -> None:
    home.attend("p")
    fair = QueueTerms("max-min-fairness", round_seconds=600.0)
    home.queue().join([replace(joined("p"), terms=fair)])
    assert home.queue().parts("p") is not None
    assert home.last_round().queue.terms == fair
    refused = (
        "q would share quotas by policy mean-completion in rounds of 6 minutes, but job p was "
        "launched with policy max-min-fairness in rounds of 10 minutes"
    )
    with pytest.raises(BadRequest, match=refused):
        home.queue().join([joined("q")])
    with pytest.raises(
        BadRequest, match="other weights of users, but job p was launched with its weights"
    ):
        home.queue().present(replace(fair, users={"ada": QueueUser(2.0)}), ["q"])
    home.leave("p")
    home.queue().join([joined("q")])


def test_a_run_gives_its_machines_to_a_shorter_job_and_goes_on_after_it(
    home: Home, tmp_path: Path
) -> None:
    """At the end of the hour that is paid; it rents nothing while it waits, and loses no work."""
    one = life(tmp_path / "home", rounds=1500)
    one.terms = terms(reliable=0)
    home.attend("p", "q")
    queue = SharedQueue(home.settings, LOCAL, one.cloud.now)
    queue.join([joined("p", 500.0, interruptible=True)])
    assert queue.parts("p") == parts(16, 8)
    held = list[tuple[int, bool, int]]()
    with EventLog(home.paths.log) as log:
        journal = Journal(log, RUN, one.cloud.now)
        journal.write(ev.RunBegan("p", one.cloud.name, {}, "", 0, None, QUOTAS))

        def strategy() -> tuple[Strategy, StrategyTerms]:
            return Standard(), one.terms

        def pause() -> None:
            one.world.pass_round()
            held.append((one.world.rounds, journal.state.waits, len(one.world.running)))
            if one.world.rounds == 20:
                queue.join([joined("q", 1.0)])
            if one.world.rounds == 300:
                queue.leave("q")

        rules = replace(
            RunRules(strategy, TARIFF), quotas=queue.changed_parts, surplus=queue.surplus
        )
        runner = Runner(journal, environment(one.cloud), one.work, rules)
        assert runner.run(pause, lambda: 0).outcome == DONE
    machines = held[10][2]
    assert machines > 0
    waiting = [count for number, waits, count in held if waits and number < 300]
    # A round, the rest of the hour at most, and then the notice of a return.
    assert waiting[-1] == 0
    assert len([count for count in waiting if count]) <= 10
    assert waiting
    assert min(number for number, waits, _ in held if waits) <= 120 + 12
    after = [count for number, waits, count in held if number > 310 and not waits]
    assert max(after) == machines
