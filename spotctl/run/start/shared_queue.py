"""The queue of this home's jobs under quotas: whichever process looks first after a change decides
the next round.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from bidbrain.billing.rules import HourlyRefund, rule_of_cloud
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import JobQueue, QueueJob, QueueQuota, QueueTerms
from pricing_data.market import Market
from pricing_data.units import HOUR, SECOND
from spotctl.clouds.wiring import library, local_provider
from spotctl.files.job.spec import JobSpec
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.home.quotas import Quota, quotas_from
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.events import QuotasShared
from spotctl.log.jobs import is_running
from spotctl.log.queue import CLOUDS, LOCAL, JobJoined, JobLeft, JobsQueued
from spotctl.log.state import Held, RunState
from spotctl.log.statuses import latest_run, latest_runs
from spotctl.log.store import EventLog
from spotctl.planning.quotas import used

_MEASURED_CLOCKS = 20
"""Clocks after which the speed of a training is known."""


def queue_terms(specs: Sequence[JobSpec], settings: Settings) -> QueueTerms:
    """How these jobs share quotas: by the policy that they name, or that of the settings."""
    named = {spec.queue.policy: spec.name for spec in specs}
    if len(named) > 1:
        (policy, first), (other, second) = [
            (name or settings.queue_policy, job) for name, job in named.items()
        ][:2]
        if policy != other:
            raise BadRequest(
                f"{first} shares quotas by queue.policy {policy}, and {second} by {other}: give "
                "jobs that are launched together the same"
            )

    return settings.queue_terms(next(iter(named)))


def queue_of(spec: JobSpec, settings: Settings) -> "SharedQueue":
    """The queue of a job: that of the local market, or that of clouds."""
    if spec.is_local:
        return SharedQueue(settings, LOCAL, local_provider(settings, spec).now)
    return SharedQueue(settings, CLOUDS, wall_us)


class SharedQueue:
    """One queue of a home, `local` or `clouds`, on its clock in microseconds. All that it knows is
    in the log, so that the processes of several launches agree."""

    def __init__(self, settings: Settings, name: str, now: Callable[[], int]) -> None:
        self._settings = settings
        self._name = name
        self._clock = now
        self._paths = Paths(settings.home)
        self._known = JobsQueued()
        # When machines outside of the queue were last looked at, and the ends of the leases of jobs
        # without a process.
        self._looked = 0.0
        self._leases = dict[str, int]()

    def join(self, jobs: Sequence[JobJoined]) -> None:
        """Puts jobs into the queue, all at the same moment."""
        with EventLog(self._paths.log) as log:
            while True:
                known = self._read(log)
                # With the quotas as they are before any run takes something of them, as far as that
                # is known: plans know what is left of them now.
                whole = list[JobJoined]()
                for each in jobs:
                    stated = self._stated(each.quotas)
                    quotas = list[QueueQuota]()
                    for quota in each.quotas:
                        known_quota = stated.get(quota.name)
                        amount = quota.amount if known_quota is None else float(known_quota.amount)
                        quotas.append(replace(quota, amount=amount))
                    whole.append(replace(each, quotas=tuple(quotas)))

                jobs = whole
                self._check_amounts(known, jobs)
                for each in jobs:
                    self._check_terms(known, each.terms, each.job.name)
                again = [JobLeft(each.job.name) for each in jobs if each.job.name in known.joined]
                now = self._clock() / SECOND
                fresh = [
                    replace(each, job=replace(each.job, arrival=now, since=now)) for each in jobs
                ]
                if log.add_to_queue(self._name, known.rows, [*again, *fresh]):
                    return

    def leave(self, job: str) -> None:
        """Takes a job out of the queue, if it is there."""
        with EventLog(self._paths.log) as log:
            while job in (known := self._read(log)).joined:
                if log.add_to_queue(self._name, known.rows, [JobLeft(job)]):
                    return

    def has(self, job: str) -> bool:
        """Whether a job is in the queue."""
        with EventLog(self._paths.log) as log:
            return job in self._read(log).joined

    def present(self, terms: QueueTerms, besides: Sequence[str]) -> JobQueue:
        """The queue as it is now, without some jobs, for plans of these that have such terms."""
        if not store.exists(self._paths.log):
            return JobQueue(0.0, (), (), terms)
        with EventLog(self._paths.log) as log:
            known = self._read(log)
            jobs = [
                name for name in known.joined if name not in besides and self._counts(name, log)
            ]
            if not jobs:
                return JobQueue(0.0, (), (), terms)
            self._check_terms(known, terms, besides[0])
            now = self._clock() / SECOND
            queued = [self._present(known, name, now, log) for name in jobs]
            return known.queue_of(queued, now, known.quotas_of(jobs))

    def ahead(self, job: str) -> tuple[str, ...]:
        """The jobs that hold machines, and those that begin before one that waits."""
        last = self._decided().last
        if last is None:
            return ()
        order = list(last.order)
        before = order[: order.index(job)] if job in order else []
        return tuple(name for name in dict.fromkeys([*last.machines, *before]) if name != job)

    def parts(self, job: str) -> Mapping[str, int] | None:
        """A job's parts of the quotas in the present round, by name: what its machines use, and
        what no job uses. None if it holds nothing."""
        known = self._decided()
        joined = known.joined.get(job)
        last = known.last
        if joined is None or last is None or not last.machines.get(job):
            return None

        parts = dict[str, int]()
        names = {own.name for own in joined.quotas}
        for quota in last.queue.quotas:
            if quota.name not in names:
                continue
            uses = dict[str, float]()
            for name, machines in last.machines.items():
                of_kinds = (quota.per_machine.get(kind, 0.0) * n for kind, n in machines.items())
                uses[name] = sum(of_kinds)
            # Machines outside of the queue may have taken what jobs keep.
            free = max(quota.amount - sum(uses.values()), 0.0)
            parts[quota.name] = int(uses[job] + free + 1e-6)

        for whole in account_quotas.known(self._settings, wall_us(), spot=False):
            if whole.name in joined.on_demand:
                others = (
                    each.on_demand.get(whole.name, 0)
                    for name, each in known.joined.items()
                    if name != job
                )
                parts[whole.name] = max(joined.on_demand[whole.name], whole.amount - sum(others))

        return parts

    def changed_parts(self, state: RunState) -> QuotasShared | None:
        """The parts of the quotas that a run may use from now on; None for no change. A run that
        has lost its turn keeps its parts in mind, and waits."""
        parts = self.parts(state.job) if state.quotas else None
        joined = self._known.joined.get(state.job)
        if joined is None:
            return None

        job = joined.job
        if job.gang and job.least == job.most and parts is not None and not state.waits:
            # A number of nodes uses no larger part.
            return None

        own = quotas_from(state.quotas)
        text = ", ".join(
            str(replace(quota, amount=(parts or {}).get(quota.name, quota.amount))) for quota in own
        )
        if (text, parts is None) == (state.quotas, state.waits):
            return None
        return QuotasShared(text, parts is None)

    def surplus(self, state: RunState) -> tuple[str, ...]:
        """The machines by which a run exceeds its parts of the quotas, the newest first."""
        joined = self._known.joined.get(state.job)
        if joined is None:
            return ()

        own = {
            quota.name: 0 if state.waits else quota.amount
            for quota in quotas_from(state.quotas)
            if quota.spot
        }

        staying = [
            held
            for held in state.alive
            if state.allocations[held.allocation].bid is not None
            and not (
                held.returning or held.warned_until is not None or state.leaves_at(held) is not None
            )
        ]

        names = list[str]()
        for quota in joined.quotas:
            uses = {
                held.id: quota.per_machine.get(_kind(state, held), 0.0)
                for held in staying
                if held.id not in names
            }
            over = sum(uses.values()) - own.get(quota.name, inf)
            for held in sorted(staying, key=lambda held: (-held.started, held.id)):
                if over > 1e-6 and uses.get(held.id):
                    names.append(held.id)
                    over -= uses[held.id]

        return tuple(names)

    def _read(self, log: EventLog) -> JobsQueued:
        self._known = log.queued(self._name, self._known)
        return self._known

    def _decided(self) -> JobsQueued:
        """The queue with its present round, which is decided now if it is due."""
        with EventLog(self._paths.log) as log:
            while True:
                known = self._read(log)
                if not known.joined:
                    return known
                now = self._clock() / SECOND
                jobs = [name for name in known.joined if self._counts(name, log)]
                last = known.last
                is_changed = (
                    known.changed
                    or last is None
                    or {job.name for job in last.queue.jobs} != set(jobs)
                )
                if last is not None and not is_changed:
                    ends = max(self._looked, last.queue.now) + last.queue.terms.round_seconds
                    if now < ends:
                        return known
                self._looked = now
                quotas = self._left_of(known.quotas_of(jobs), known, log)
                queue = known.queue_of(
                    [self._present(known, name, now, log) for name in jobs], now, quotas
                )
                decided = next_round(queue, last)
                is_same = last is not None and (decided.machines, quotas) == (
                    last.machines,
                    last.queue.quotas,
                )
                # A round like the last one goes on with it: what jobs have received counts from its
                # beginning.
                if is_same and not is_changed:
                    return known
                log.add_to_queue(self._name, known.rows, [decided])

    def _left_of(
        self, quotas: Sequence[QueueQuota], known: JobsQueued, log: EventLog
    ) -> tuple[QueueQuota, ...]:
        """The quotas without the machines of runs that are not in the queue."""
        outside = Counter[Market]()
        for run in latest_runs(log):
            if run.ended is None and run.began is not None and run.job not in known.joined:
                outside += run.by_market(spot=True, at=self._clock())

        if not outside:
            return tuple(quotas)

        catalog = library(self._settings).catalog
        stated = self._stated(quotas)
        taken = {name: used(whole, outside, catalog) for name, whole in stated.items()}
        return tuple(
            replace(quota, amount=max(quota.amount - taken.get(quota.name, 0), 0.0))
            for quota in quotas
        )

    def _stated(self, quotas: Sequence[QueueQuota]) -> dict[str, Quota]:
        """The known quotas by name, those for every region in the regions of the queue."""
        known = account_quotas.known(self._settings, wall_us())
        regions = {kind.split("/")[1] for quota in quotas for kind in quota.per_machine}
        return {
            (there := quota.within(region)).name: there for quota in known for region in regions
        }

    def _counts(self, job: str, log: EventLog) -> bool:
        """Whether a process attends to a job, or its run holds machines, which end with their
        leases.
        """
        if is_running(self._paths.locks, job):
            self._leases.pop(job, None)
            return True

        if job not in self._leases:
            # No process renews these leases.
            state = latest_run(log, job)
            now = self._clock()
            alive = () if state is None else state.alive
            self._leases[job] = max(
                (held.lease_until for held in alive if held.exists_at(now)), default=now
            )

        return self._clock() < self._leases[job]

    def _present(self, known: JobsQueued, name: str, now: float, log: EventLog) -> QueueJob:
        """A job as it is now: with the work that is left."""
        job = known.job(name, now)
        joined = known.joined[name]
        state = latest_run(log, name)
        if state is None or state.started / SECOND < job.arrival:
            return job

        # The share of the run's work that is left.
        now_us = self._clock()
        done = 0.0
        if joined.clocks and state.progress is not None:
            done = state.progress.clock / joined.clocks
        if joined.span and state.paces:
            done = max(done, (now_us - state.paces[0][0]) / joined.span)
        if joined.lasts:
            done = state.work.done(now_us) / joined.lasts
        left = 1.0 - min(max(done, 0.0), 1.0)

        high = None if job.work_high is None else job.work_high * left
        work = None if job.work is None else job.work * max(left, 1e-9)
        job = replace(job, work=work, work_low=job.work_low * left, work_high=high)

        # The end of the hour that is paid already, of the machine whose hour ends first; 0 where
        # machines cost only the time that they run.
        paid = list[int]()
        for held in state.alive:
            allocation = state.allocations[held.allocation]
            if allocation.reliable:
                continue
            is_by_hour = isinstance(rule_of_cloud(allocation.market.cloud), HourlyRefund)
            hours_begun = -(-(now_us - held.started) // HOUR)
            paid.append(held.started + hours_begun * HOUR if is_by_hour else 0)

        measured = _measured(job, joined, state, now_us)
        return replace(measured, paid_until=min(paid, default=0) / SECOND)

    def _check_terms(self, known: JobsQueued, terms: QueueTerms, job: str) -> None:
        """Refuses other terms than those of the jobs in the queue."""
        for name, each in known.joined.items():
            if name != job and each.terms != terms and is_running(self._paths.locks, name):
                ours, theirs = (
                    f"policy {stated.policy} in rounds of {stated.round_seconds / 60:g} minutes"
                    for stated in (terms, each.terms)
                )
                if ours == theirs:
                    ours = "other weights of users"
                    theirs = "its weights"
                raise BadRequest(
                    f"{job} would share quotas by {ours}, but job {name} was launched with "
                    f"{theirs}: launch with the"
                    " same (queue.policy of the job file, settings queue_policy, queue_users, "
                    "queue_round_minutes), or once that job has ended"
                )

    def _check_amounts(self, known: JobsQueued, jobs: Sequence[JobJoined]) -> None:
        """Refuses other amounts than those by which the jobs of the queue were planned."""
        amounts = {
            quota.name: (name, quota.amount)
            for name, each in known.joined.items()
            for quota in each.quotas
        }

        stated = {quota.name.split("/")[0] for quota in self._settings.quotas}
        for quota in (quota for each in jobs for quota in each.quotas):
            name, amount = amounts.get(quota.name, ("", quota.amount))
            if (
                amount != quota.amount
                and quota.name.split("/")[0] in stated
                and is_running(self._paths.locks, name)
            ):
                raise BadRequest(
                    f"quota {quota.name} is {quota.amount:g} here, but job {name} was launched "
                    f"with {amount:g}: launch with the same quotas, or once that job has ended"
                )


def _kind(state: RunState, held: Held) -> str:
    market = state.allocations[held.allocation].market
    return "" if market.reservation else f"{market.cloud}/{market.region}/{market.instance_type}"


def _measured(job: QueueJob, joined: JobJoined, state: RunState, now: int) -> QueueJob:
    """A training with its speeds, or the length that was unknown, by the clocks of its run until
    now.
    """
    if joined.clocks is None or state.progress is None:
        return job

    done = state.progress.clock - (state.resumed_clock or 0)
    planned = 0.0
    for held in state.machines.values():
        if state.allocations[held.allocation].reliable:
            continue
        turns = (*held.turns, held.ended or now) if len(held.turns) % 2 else held.turns
        hours = sum(end - begin for begin, end in zip(turns[::2], turns[1::2], strict=True)) / HOUR
        planned += job.rates.get(_kind(state, held), 0.0) * hours

    if done < _MEASURED_CLOCKS or not planned:
        return job
    if joined.job.work is None:
        return replace(
            job, work=max(joined.clocks - state.progress.clock, 1) * planned / done, work_high=None
        )

    faster = joined.job.work * done / joined.clocks / planned
    return replace(job, rates={kind: rate * faster for kind, rate in job.rates.items()})
