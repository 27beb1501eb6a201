"""The policy of a queue that names none: deadlines first, then the mean completion time of a user's
jobs; between users, machines max-min by weight.

A *list* is pairs of a job and a type, the most urgent first; machines are handed out along it
(`filled`). `ends_of` plays one list until every job is done, and `best_list` keeps the list of the
fewest late jobs, the least lateness and the least weighted mean of completion times: Smith's order,
orders by deadline, the last round's order, and those that differ from the best of these by moving a
job.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import log2

from bidbrain.queue.values import FreeQuota, JobQueue, MeanMachines, QueueJob, QueueRound

Pair = tuple[QueueJob, str]
MachinesHeld = dict[str, dict[str, int]]

# A job of unknown length is taken to be as long again as it has run, and at least this many rounds.
_UNKNOWN_ROUNDS = 10
# Steps of one search: for each job that ends, these many and one for some pairs of the list. About
# 300 ms.
_MAX_STEPS, _STEPS_OF_END, _PAIRS_OF_STEP = 200_000, 10, 10
_ALL_ORDERS = 5
_SAME_RATE = 0.05
_NOTHING = 1e-9
# Deadlines that several users share are kept this much before their time.
_EARLY = 0.95
# An end of all jobs that is an hour earlier is worth this many hours of mean completion time.
_LAST_COUNTS = 0.1


def length_of(job: QueueJob, queue: JobQueue) -> float:
    """The work that is left, or what it is taken to be."""
    if job.work is not None:
        return job.work
    if job.work_high is not None:
        return (job.work_low + job.work_high) / 2
    done = job.speed(job.received)
    best = max(job.rates.values()) / 3600 * job.most
    return max(done, job.work_low, _UNKNOWN_ROUNDS * queue.terms.round_seconds * best)


def shortest_seconds(job: QueueJob, queue: JobQueue) -> float:
    """The time that the job takes if it has all machines that it can use."""
    speeds = []
    for kind in job.rates:
        free = queue.machines(kind)
        most = min(job.most, free)
        machines = {kind: most}
        speeds.append(job.speed(machines))
    speed = max(speeds, default=0.0)
    if speed > 0:
        return length_of(job, queue) / speed
    return float("inf")


def must_go_first(queue: JobQueue) -> list[QueueJob]:
    """Jobs that have waited too long, the longest first, and those that such a job has just begun
    before.
    """
    limit = queue.terms.max_wait_rounds * queue.terms.round_seconds
    late = [job for job in queue.jobs if not job.holds() and queue.now - job.since >= limit]
    return sorted(late, key=lambda job: (job.since, job.name))


def listed(jobs: Sequence[QueueJob], kinds: Mapping[str, int]) -> list[Pair]:
    """Pairs job by job, for each the types first on which the quotas hold its fastest machines."""
    pairs = list[Pair]()
    for job in jobs:
        usable = (kind for kind in job.rates if kinds.get(kind) and job.rates[kind] > 0)
        speeds = {kind: job.rates[kind] * min(job.most, kinds[kind]) for kind in usable}
        fastest_first = sorted(speeds, key=lambda kind: (-speeds[kind], -job.rates[kind], kind))
        pairs += [(job, kind) for kind in fastest_first]

    return pairs


def filled(pairs: Sequence[Pair], free: FreeQuota, held: MachinesHeld) -> MachinesHeld:
    """Hands out machines along a list, in addition to those held; a job that cannot have its least
    gets none.
    """
    given = dict(held)
    short = dict[str, QueueJob]()
    for job, kind in pairs if free.room else ():
        if kind not in free.room:
            continue

        mine = given.get(job.name, {})
        have = sum(mine.values())
        if have >= job.most or (job.gang and mine and not job.interruptible):
            continue
        if mine and kind not in mine and not job.joins(kind, mine):
            continue

        count = min(job.most - have, free.machines(kind))
        if count <= 0 or (have + count < job.least and not _can_begin(job, kind, have, free)):
            continue

        free.take(kind, count)
        before = mine.get(kind, 0)
        given[job.name] = {**mine, kind: before + count}
        if have + count < job.least:
            short[job.name] = job

    lacking = {name for name, job in short.items() if sum(given[name].values()) < job.least}
    if not lacking:
        return given

    for name in lacking:
        for kind, count in given.pop(name).items():
            free.take(kind, -count)

    return filled([pair for pair in pairs if pair[0].name not in lacking], free, given)


def _can_begin(job: QueueJob, kind: str, have: int, free: FreeQuota) -> bool:
    """Whether there may be as many machines as the job needs, those of a type among them."""
    if job.gang:
        return have + free.machines(kind) >= job.least
    others = sum(free.machines(other) for other in job.rates if job.joins(other, {kind: 1}))
    possible = have + others
    return possible >= job.least


def _without(free: FreeQuota, held: MachinesHeld) -> FreeQuota:
    """Takes the machines that are held."""
    for machines in held.values():
        for kind, count in machines.items():
            free.take(kind, count)
    return free


def move_up(
    jobs: Mapping[str, QueueJob],
    running: MachinesHeld,
    left: Callable[[str], float],
    free: FreeQuota,
) -> list[str]:
    """Moves jobs that hold machines of one type to the fastest that is free, where they end earlier
    by that.
    """
    moved = []
    for name, machines in running.items() if free.room else ():
        if name not in jobs or len(machines) != 1 or not jobs[name].interruptible:
            continue

        job, ((kind, count),) = jobs[name], machines.items()
        rates = job.rates
        own = job.rates[kind]
        faster = [
            (rates[other], other)
            for other, most in free.room.items()
            if most >= count and other in rates and rates[other] > own
        ]
        if not faster:
            continue

        rate, other = max(faster)
        seconds_left = left(name) / count * 3600
        slower = 1 / job.rates[kind] - 1 / rate
        if seconds_left * slower > job.swap_seconds:
            free.take(kind, -count)
            free.take(other, count)
            running[name] = {other: count}
            moved.append(name)

    return moved


def _part_of(job: QueueJob, machines: Mapping[str, int]) -> dict[str, int]:
    """The machines that it keeps to have no more than these."""
    both = {
        kind: common
        for kind, count in job.held.items()
        if (common := min(count, machines.get(kind, 0)))
    }
    holds_fewer = sum(machines.values()) < job.holds()
    fewer = holds_fewer and not job.gang
    if fewer and sum(both.values()) >= job.least:
        return both
    return dict(job.held)


def ends_of(queue: JobQueue, pairs: Sequence[Pair], held: MachinesHeld) -> dict[str, float]:
    """Seconds from now until each job of the list ends, if its jobs begin in this order and keep
    what they hold.

    What jobs of the list hold already, and keep, is `held`; a job that begins makes no progress for
    `swap_seconds`.
    """
    jobs = {job.name: job for job, _ in pairs}
    running = {name: machines for name, machines in held.items() if name in jobs}
    free = _without(FreeQuota(queue), running)
    left = {name: length_of(job, queue) for name, job in jobs.items()}

    # Of the machines that a job holds now: which, how fast, from when on, and until when.
    holds = dict[str, tuple[Mapping[str, int], float, float]]()
    ends = dict[str, float]()
    now = 0.0
    until = dict[str, float]()

    def work_left(name: str) -> float:
        _, speed, since = holds[name]
        return left[name] - max(now - since, 0.0) * speed

    while len(ends) < len(jobs):
        moved = move_up(jobs, running, work_left if now else left.__getitem__, free)
        running = filled(pairs, free, running)
        for name, machines in running.items():
            before = holds.get(name)
            if before is not None and before[0] is machines:
                continue

            if before is None:
                # At the beginning a job may keep some of its machines, a gang all of them.
                own = jobs[name].held
                keeps = (
                    machines == own if jobs[name].gang else any(kind in machines for kind in own)
                )
                stays = name in held or (not now and bool(own) and keeps)
                since = now if stays and name not in moved else now + jobs[name].swap_seconds
            else:
                left[name] = work_left(name)
                since = now + jobs[name].swap_seconds if name in moved else max(before[2], now)

            speed = jobs[name].speed(machines)
            seconds = left[name] / speed
            holds[name], until[name] = (machines, speed, since), since + seconds

        if not until:
            break

        now = min(until.values())
        for name in [name for name, end in until.items() if end <= now * (1 + 1e-9)]:
            ends[name] = now
            del until[name], holds[name]
            for kind, count in running.pop(name).items():
                free.take(kind, -count)

        pairs = [pair for pair in pairs if pair[0].name not in ends]

    return ends


@dataclass(frozen=True, slots=True)
class OrderedQueue:
    """The list that was chosen, the machines that jobs keep, and what that leads to."""

    pairs: tuple[Pair, ...]
    begin: MachinesHeld
    score: tuple[float, ...]

    def names(self) -> tuple[str, ...]:
        """Jobs by their first pair."""
        names_of_pairs = (job.name for job, _ in self.pairs)
        return tuple(dict.fromkeys(names_of_pairs))


def best_list(
    queue: JobQueue, jobs: Sequence[QueueJob], previous: QueueRound | None, fixed: MachinesHeld
) -> OrderedQueue:
    """The best list of these jobs; `fixed` machines stay where they are.

    While no job comes, goes or changes, the order of the last round stays.
    """
    search = _Search(queue, jobs, fixed)
    last = {name: number for number, name in enumerate(previous.order)} if previous else {}
    if previous is not None and as_foreseen(queue, jobs, previous):
        order = sorted(jobs, key=lambda job: last[job.name])
        search.tries_order(order)
        search.tries_by_index(order)
        assert search.best is not None
        return search.best

    bases = _base_orders(queue, jobs)
    if last:
        # Of lists that are as good, the one of before stays.
        as_before = sorted(bases[0], key=lambda job: last.get(job.name, -1))
        search.tries_order(as_before)

    for order in bases:
        search.tries_order(order)
    search.tries_by_index(bases[0])

    if len(jobs) <= _ALL_ORDERS:
        for every in permutations(bases[0]):
            search.tries_order(every)
    else:
        search.moves_jobs()

    assert search.best is not None
    return search.best


class _Search:
    """The lists that were tried, and the best of them."""

    def __init__(self, queue: JobQueue, jobs: Sequence[QueueJob], fixed: MachinesHeld) -> None:
        self._queue = queue
        self._jobs = {job.name: job for job in jobs}
        self._kinds = {kind: count for kind in queue.types() if (count := queue.machines(kind))}
        must = enumerate(must_go_first(queue))
        self._first = {job.name: number for number, job in must}
        self._held: MachinesHeld = {job.name: dict(job.held) for job in jobs if job.holds()}
        self._fixed: MachinesHeld = {
            name: machines for name, machines in fixed.items() if name in self._jobs
        }
        self._tried = set[tuple[str, ...]]()
        self._steps = 0
        self._most_steps = _MAX_STEPS * len(jobs) // len(queue.jobs)
        self.best: OrderedQueue | None = None

    def tries_order(self, order: Sequence[QueueJob]) -> bool:
        """Whether this is better than the best; jobs that have waited too long come first."""
        order = sorted(order, key=lambda job: self._first.get(job.name, len(self._first)))
        key = tuple(job.name for job in order)
        if key in self._tried or (self.best is not None and self._steps >= self._most_steps):
            return False
        self._tried.add(key)
        return self._tries(listed(order, self._kinds))

    def tries_by_index(self, order: Sequence[QueueJob]) -> None:
        """The pairs by the share of a job's work that a machine does: jobs get the types that suit
        them.
        """
        if self._first or len(self._kinds) < 2:
            return
        index = {}
        for job in order:
            seconds = max(length_of(job, self._queue), 1e-300)
            index[job.name] = job.weight / seconds
        pairs = listed(order, self._kinds)
        by_index = sorted(pairs, key=lambda pair: -pair[0].rates[pair[1]] * index[pair[0].name])
        self._tries(by_index)

    def moves_jobs(self) -> None:
        """Moves one job at a time while that is better and steps are left."""
        improved = True
        while improved and self.best is not None:
            improved = False
            order = [self._jobs[name] for name in self.best.names()]
            for source, target in _moves(len(order)):
                if self._steps >= self._most_steps:
                    return
                moved = [*order]
                moved.insert(target, moved.pop(source))
                if self.tries_order(moved):
                    improved = True
                    break

    def _beginnings(self, pairs: Sequence[Pair]) -> Iterator[MachinesHeld]:
        """The machines that jobs may keep: all that they hold, those of jobs whose turn it is, or
        what is fixed.
        """
        yield self._held
        if self._held == self._fixed:
            return

        all_free = FreeQuota(self._queue)
        free = _without(all_free, self._fixed)
        fresh = filled(pairs, free, self._fixed)
        urgent = {
            name: _part_of(self._jobs[name], fresh[name]) for name in self._held if name in fresh
        }
        if urgent != self._held:
            yield urgent
        yield self._fixed

    def _tries(self, pairs: Sequence[Pair]) -> bool:
        better = False
        for begin in self._beginnings(pairs):
            more_steps = len(pairs) // _PAIRS_OF_STEP
            steps = _STEPS_OF_END + more_steps
            self._steps += len(self._jobs) * steps
            ends = ends_of(self._queue, pairs, begin)

            late = 0
            lateness = 0.0
            total = 0.0
            last = 0.0
            for job in self._jobs.values():
                end = ends.get(job.name)
                if end is None:
                    # It runs on nothing that the quotas hold.
                    continue

                over = self._queue.now + end - _due(job)
                late += over > 0
                lateness += max(over, 0.0)
                total += job.weight * end
                last = max(last, end)

            mean = total / sum(job.weight for job in self._jobs.values())
            # Lists that differ by less are alike: the first that was tried stays.
            weighed = mean + _LAST_COUNTS * last
            rounded_mean = round(weighed, 1)
            score = (late, round(lateness, 1), rounded_mean)
            ordered = OrderedQueue(tuple(pairs), begin, score)
            if self.best is None or ordered.score < self.best.score:
                self.best = ordered
                better = True

        return better


def as_foreseen(queue: JobQueue, jobs: Sequence[QueueJob], previous: QueueRound) -> bool:
    """Whether the last round knew the quotas, and these jobs, as they are."""
    if queue.quotas != previous.queue.quotas or must_go_first(queue):
        return False

    known = {job.name: job for job in previous.queue.jobs}
    here = {job.name for job in queue.jobs}
    passed = queue.now - previous.queue.now
    passed_at_most = passed * (1 + _NOTHING)
    for name, gone in known.items():
        if name in here:
            continue
        # It must have ended when it was expected to, within the last round.
        speed = gone.speed(previous.machines.get(name, {}))
        seconds = length_of(gone, previous.queue) / speed if speed > 0 else float("inf")
        if not seconds <= passed_at_most <= seconds + queue.terms.round_seconds:
            return False

    for job in jobs:
        before = known.get(job.name)
        if before is None or job.rates.keys() != before.rates.keys():
            return False
        if _terms(job, queue) != _terms(before, previous.queue):
            return False

        changes = [
            rate / before.rates[kind] - 1 for kind, rate in job.rates.items() if before.rates[kind]
        ]
        if any(abs(change) > _SAME_RATE for change in changes):
            return False

    return True


def _terms(job: QueueJob, queue: JobQueue) -> tuple[float | None, ...]:
    """The parts of a job that the order depends on; lengths that are guessed in powers of two."""
    guessed = None
    if job.work is None:
        guessed = round(log2(max(length_of(job, queue), _NOTHING)))
    return job.deadline, job.weight, job.least, job.most, guessed


def _base_orders(queue: JobQueue, jobs: Sequence[QueueJob]) -> list[list[QueueJob]]:
    """Smith's order; deadlines in their order, then Smith's; deadlines by slack, then Smith's; the
    widest first.
    """
    smith = sorted(
        jobs, key=lambda job: (shortest_seconds(job, queue) / job.weight, job.arrival, job.name)
    )
    orders = [smith]
    if any(job.deadline is not None for job in jobs):
        orders.append(sorted(smith, key=_due))
        by_slack = sorted(smith, key=lambda job: _due(job) - shortest_seconds(job, queue))
        orders.append(by_slack)

    # The widest first: what remains beside them is filled up.
    biggest_first = sorted(smith, key=lambda job: -job.least)
    orders.append(biggest_first)
    return orders


def _moves(count: int) -> Iterator[tuple[int, int]]:
    """Neighbors first."""
    for distance in range(1, count):
        for source in range(count - distance):
            yield source, source + distance
            if distance > 1:
                yield source + distance, source


def _due(job: QueueJob) -> float:
    if job.deadline is None:
        return float("inf")
    return job.deadline


def default_shares(
    queue: JobQueue, previous: QueueRound | None, fixed: MachinesHeld
) -> tuple[MeanMachines, tuple[str, ...]]:
    """Mean machines by job and type, and the order in which jobs begin."""
    users = sorted({job.user for job in queue.jobs})
    lists = {}
    for user in users:
        own_jobs = [job for job in queue.jobs if job.user == user]
        lists[user] = best_list(queue, own_jobs, previous, fixed)

    if len(users) == 1:
        (ordered,) = lists.values()
        begin = dict(ordered.begin)
        free = _without(FreeQuota(queue), begin)
        movable = {job.name: job for job in queue.jobs if job.name not in fixed}
        move_up(movable, begin, lambda name: length_of(movable[name], queue), free)
        return filled(ordered.pairs, free, begin), ordered.names()

    names = (name for ordered in lists.values() for name in ordered.names())
    order = tuple(names)
    pairs_of_users = {user: ordered.pairs for user, ordered in lists.items()}

    # Machines grow evenly by the users' weights, each user's along its list, until quotas or jobs
    # are full. Jobs with deadlines have what keeps these beforehand, the earliest first; it counts
    # as their users'.
    growth = _Growth(queue, pairs_of_users)
    hurrying = (job for job in queue.jobs if job.deadline is not None)
    hurried = sorted(hurrying, key=lambda job: (_due(job), job.name))
    for job in [*must_go_first(queue), *hurried]:
        growth.needs(job, _needed(job, queue))
    while growth.grows():
        pass

    return growth.shares, order


class _Growth:
    """The shares while users fill up, and each user's level: its machines over its weight."""

    def __init__(self, queue: JobQueue, lists: Mapping[str, Sequence[Pair]]) -> None:
        self._free = FreeQuota(queue)
        self._lists = {user: list(pairs) for user, pairs in lists.items()}
        users = queue.terms.users
        self._weight = {user: users[user].weight if user in users else 1.0 for user in lists}
        self._level = dict.fromkeys(lists, 0.0)
        self.shares: dict[str, dict[str, float]] = {}

    def needs(self, job: QueueJob, work_per_hour: float) -> None:
        """Gives the job machines for this much work, as far as there are any."""
        for other, kind in self._lists[job.user]:
            own_shares = self.shares.get(job.name, {})
            work = sum(share * job.rates[k] for k, share in own_shares.items())
            lacking = work_per_hour - work
            if other is job and lacking > 0:
                lacking_share = lacking / job.rates[kind]
                amount = self._free.amount(kind)
                more = min(lacking_share, amount, self._room(job))
                self._gives(job, kind, more)

    def grows(self) -> bool:
        """The users that have least grow until they reach the next, a quota ends, or a job is
        full."""
        growing = dict[str, Pair]()
        for user, pairs in self._lists.items():
            while pairs and (
                self._room(pairs[0][0]) <= _NOTHING or self._free.amount(pairs[0][1]) <= _NOTHING
            ):
                pairs.pop(0)
            if pairs:
                growing[user] = pairs[0]

        if not growing:
            return False

        lowest = min(self._level[user] for user in growing)
        now = {
            user: pair for user, pair in growing.items() if self._level[user] <= lowest + _NOTHING
        }
        steps = [self._level[user] - lowest for user in growing if user not in now]
        steps += [self._room(job) / self._weight[user] for user, (job, _) in now.items()]
        used = dict[int, float]()
        for user, (_, kind) in now.items():
            for number, use in self._free.uses(kind):
                before = used.get(number, 0.0)
                used[number] = before + use * self._weight[user]

        steps += [self._free.left(number) / use for number, use in used.items()]
        for user, (job, kind) in now.items():
            part = min(steps) * self._weight[user]
            self._gives(job, kind, part)
        return True

    def _gives(self, job: QueueJob, kind: str, count: float) -> None:
        self._free.take(kind, count)
        mine = self.shares.setdefault(job.name, {})
        mine[kind] = mine.get(kind, 0.0) + count
        self._level[job.user] += count / self._weight[job.user]

    def _room(self, job: QueueJob) -> float:
        """Machines that the job can use on top of its share."""
        own_shares = self.shares.get(job.name, {})
        held = sum(own_shares.values())
        return job.most - held


def _needed(job: QueueJob, queue: JobQueue) -> float:
    """Work per hour that keeps the deadline, or of one machine for a job that has waited too
    long."""
    if job.deadline is None:
        return job.least * max(job.rates.values(), default=0.0)
    time_left = job.deadline - queue.now
    usable = time_left * _EARLY
    swapping = 0.0 if job.holds() else job.swap_seconds
    seconds = usable - swapping
    if seconds > 0:
        return length_of(job, queue) * 3600 / seconds
    return float("inf")
