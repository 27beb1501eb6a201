"""Which of many colliding deadlines to keep, and when and where each job runs.

A program in which giving up a deadline has a price says which to give up, and what a second on each
type is worth. Its columns are the seconds of each job on each type, and whether its deadline is
given up. For each of some deadlines, the jobs that are due by then must not use more worker-seconds
of a type than there are until then. That is what every plan fulfills, so the program's number of
kept deadlines is a bound. Giving up one costs more than all work together.

Jobs then take free workers one by one at these prices, by deadline, and last those that the program
gives up, the cheapest first. Of the jobs that do not fit, some fit after a few others were taken
out and put back. At last each job is put again where it costs the fewest dollars.
"""

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.deadline_plan import DeadlineBatch, DeadlinePlan
from bidbrain.gavel.problem import Pieces
from bidbrain.gavel.sifting import Groups, LevelObjective, sift

# Deadlines whose workers are counted: evenly spread among all.
_STAGES = 96
# Bounds the intervals of a plan, and what is tried for jobs that do not fit.
_INTERVALS, _TRIES, _TAKEN_OUT = 512, 2000, 12
_LATE_TOLERANCE = 1e-9
_NO_WORK, _ROUNDING = 1e-12, 1e-9


def lateness(batch: DeadlineBatch) -> tuple[Floats, Floats, float]:
    """The program's optimum: the share of each deadline that is given up, the price of a second of
    each job on each type, in dollars over all work, with what the workers are worth to other jobs,
    and its dollars.

    Each job must have enough time for its work on some type.
    """
    count, types = batch.alone.shape
    shares = np.linspace(0, 1, _STAGES + 1)[1:]
    stage_ends = np.quantile(batch.left, shares, method="higher")
    ends = np.unique(stage_ends)
    stage = np.searchsorted(ends, batch.left)
    lengths = np.diff(ends, prepend=0.0)
    usd = batch.scale[:, None] * batch.usd_per_second
    finite_work = np.where(np.isfinite(batch.alone), batch.alone * usd, 0.0)
    dearest = finite_work.max(axis=1)
    all_work = dearest.sum()

    # In units of the mean worker-seconds per job; giving up needs no workers.
    worker_seconds = batch.workers.sum() * ends[-1]
    unit = worker_seconds / count
    seconds_of_types = lengths[:, None] * batch.workers
    no_limit = np.full(len(ends), np.inf)
    workers = np.column_stack([seconds_of_types / unit, no_limit])
    left = batch.left[:, None]
    all_of_it = np.ones(count)
    nothing = np.zeros(count)
    own = usd * left / all_work
    progress = np.column_stack([left / batch.alone, all_of_it])
    cost = np.column_stack([own, all_of_it])
    worker_time = batch.scale * batch.left
    groups = Groups(progress, worker_time / unit, workers, stage, cost)

    sifted = sift(groups, LevelObjective(all_of_it, nothing, nothing, 0.0))
    prices_at_stages = groups.at_stages(sifted.prices)
    prices_of_types = prices_at_stages[:, :types]
    shared = prices_of_types * groups.held[:, None]
    dollars = sifted.shares[:, :types] * usd * left
    late = sifted.shares[:, -1]
    usd_per_second = (own + shared) / left
    return late, usd_per_second, float(dollars.sum())


class FreeTime:
    """Free workers of each type in each of some intervals (types by intervals).

    A job whose deadline lies within an interval runs there evenly until then, and its workers count
    as used until the end of the interval.
    """

    def __init__(self, batch: DeadlineBatch, ends: Floats) -> None:
        self._batch = batch
        self.lengths = np.diff(ends, prepend=0.0)
        self.starts = ends - self.lengths
        self.free = np.repeat(batch.workers[:, None], len(ends), axis=1)
        self._rate = 1 / batch.alone
        reached = np.searchsorted(self.starts, batch.left)
        self._reaches: list[int] = reached.tolist()

    def spans(self, jobs: Ints) -> Floats:
        """Seconds of each interval before the jobs' deadlines (jobs by intervals)."""
        left = self._batch.left[jobs, None] - self.starts
        return np.clip(left, 0.0, self.lengths)

    def most_done(self, jobs: Ints) -> Floats:
        """The share of each job's work that fits into the free workers, if only this job is
        added."""
        batch = self._batch
        spans = self.spans(jobs)
        idle = np.ones(spans.shape)
        done = np.zeros(len(jobs))
        order = np.argsort(batch.alone[jobs], axis=1)

        for kind in order.T:
            free_part = self.free[kind] / batch.scale[jobs, None]
            part = np.minimum(idle, free_part)
            idle -= part
            rate = self._rate[jobs, kind]
            used = (part * spans).sum(axis=1)
            done += rate * used
        return done

    def put(self, m: int, price: Floats) -> Floats | None:
        """Seconds of a job (types by intervals) that do all its work where a second is cheap, as
        late as possible; None if it does not fit. Those workers are no longer free."""
        spans = self._spans(m)
        free = self.free[:, : len(spans)] / self._batch.scale[m]
        job = _Fitting(free, spans, self._rate[m], price)
        if not job.fits():
            return None
        self._use(m, job.part)
        return job.part * spans

    def take_out(self, m: int, seconds: Floats) -> None:
        """Frees the workers of a job."""
        self._use(m, -seconds / self._spans(m))

    def _spans(self, m: int) -> Floats:
        """Seconds of each interval before one job's deadline, up to its last interval."""
        reaches = self._reaches[m]
        spans = self.lengths[:reaches].copy()
        until_end = self._batch.left[m] - self.starts[reaches - 1]
        spans[-1] = min(spans[-1], until_end)
        return spans

    def _use(self, m: int, part: Floats) -> None:
        free = self.free[:, : part.shape[1]]
        free -= self._batch.scale[m] * part
        np.maximum(free, 0.0, out=free)


class _Fitting:
    """One job: `part` is its share of time on each type in each interval."""

    def __init__(self, free: Floats, spans: Floats, rate: Floats, price: Floats) -> None:
        self._free = free
        self._spans = spans
        self._rate = rate
        self._price = price
        self.part = np.zeros(free.shape)
        self._left = 1.0

    def fits(self) -> bool:
        """Fills idle time with the cheapest types, then moves to faster ones, the cheapest moves
        first.
        """
        rate = self._rate
        price = self._price
        # Most jobs that do not fit would not even if they could use several types at the same time.
        speed = rate @ np.minimum(self._free, 1.0)
        most = float(speed @ self._spans)
        if most < 1 - 2 * _ROUNDING:
            return False

        runs = [j for j in range(len(rate)) if rate[j] > 0]
        idle = np.ones(len(self._spans))
        for j in sorted(runs, key=lambda j: float(price[j] / rate[j])):
            possible = np.minimum(idle, self._free[j])
            taken = self._taken(possible, float(rate[j]))
            self.part[j] += taken
            idle -= taken
            if self._left <= _NO_WORK:
                return True

        moves = [(slow, fast) for slow in runs for fast in runs if rate[fast] > rate[slow]]
        moves.sort(
            key=lambda move: float(
                (price[move[1]] - price[move[0]]) / (rate[move[1]] - rate[move[0]])
            )
        )

        for slow, fast in moves:
            unused = self._free[fast] - self.part[fast]
            room = np.maximum(unused, 0.0)
            most_moved = np.minimum(self.part[slow], room)
            faster = float(rate[fast] - rate[slow])
            taken = self._taken(most_moved, faster)
            self.part[slow] -= taken
            self.part[fast] += taken
            if self._left <= _NO_WORK:
                return True

        return self._left <= _ROUNDING

    def _taken(self, most: Floats, gain: float) -> Floats:
        """The part of `most` that the job still needs, the last intervals first."""
        done = most * self._spans * gain
        reached = done[::-1].cumsum()
        if reached[-1] <= self._left:
            self._left -= float(reached[-1])
            return most

        after = int(reached.searchsorted(self._left))
        first = len(done) - 1 - after
        before = reached[after - 1] if after else 0.0
        part = np.zeros(len(done))
        part[first + 1 :] = most[first + 1 :]
        wanted = most[first] * (self._left - before)
        part[first] = wanted / done[first]
        self._left = 0.0

        return part


def packed(batch: DeadlineBatch, late: Floats, price: Floats) -> tuple[Ints, DeadlinePlan, Floats]:
    """The kept jobs, their plan, and the share of each job's work that fits (1 for the kept)."""
    packing = _Packing(batch, late, price)
    packing.fill()
    packing.exchange()
    packing.cheapen()
    kept = np.array(sorted(packing.seconds), dtype=np.int64)
    done = np.ones(len(batch.left))
    out = np.setdiff1d(np.arange(len(batch.left)), kept)
    done[out] = packing.time.most_done(out)
    return kept, packing.plan(kept), done


class _Packing:
    """Jobs with their seconds (types by intervals), and those that are out."""

    def __init__(self, batch: DeadlineBatch, late: Floats, price: Floats) -> None:
        self._batch = batch
        self._price = price
        self._late = late
        possible = batch.left[late < 1 - _LATE_TOLERANCE]
        shares = np.linspace(0, 1, _INTERVALS + 1)[1:]
        interval_ends = np.quantile(possible, shares, method="higher")
        ends = np.unique(interval_ends)
        self.time = FreeTime(batch, ends)
        self.seconds: dict[int, Floats] = {}
        self._out: list[int] = []

    def fill(self) -> None:
        """Puts the jobs that the program keeps, then the others if they fit."""
        batch = self._batch
        cheapest = (self._price * self._batch.alone).min(axis=1)
        keeps = self._late < _LATE_TOLERANCE
        by_urgency = np.where(keeps, batch.left, cheapest)
        for m in np.lexsort((by_urgency, self._late, ~keeps)).tolist():
            if not self._put(m):
                self._out.append(m)

    def _put(self, m: int) -> bool:
        seconds = self.time.put(m, self._price[m])
        if seconds is not None:
            self.seconds[m] = seconds
        return seconds is not None

    def exchange(self) -> None:
        """Tries jobs that are out in place of a few others, which are put back: fewer must be out
        then, or others.
        """
        rng = np.random.default_rng(0)
        tries = 0
        if len(self._batch.left) <= _INTERVALS:
            tries = _TRIES
        while tries > 0 and self._out and self.seconds:
            out = np.array(self._out)
            there = np.array(list(self.seconds))
            chances = rng.uniform(0.7, 1, len(out))
            scores = self.time.most_done(out) * chances
            m = int(out[scores.argmax()])
            relative = self._batch.left[there] / self._batch.left[m]
            distance = np.abs(np.log(relative))
            luck = rng.exponential(0.5, len(there))
            far = distance + luck
            tries -= _TAKEN_OUT
            nearest = np.argsort(far)[:_TAKEN_OUT]
            others = there[nearest]

            # Puts the job before the others, unless more than one of these would be out.
            free = self.time.free.copy()
            before = {u: self.seconds.pop(u) for u in others.tolist()}
            for u, seconds in before.items():
                self.time.take_out(u, seconds)
            in_order = sorted(before, key=lambda u: float(self._batch.left[u]))
            lost = [u for u in (m, *in_order) if not self._put(u)]
            if m in lost or len(lost) > 1:
                self.time.free = free
                self.seconds.pop(m, None)
                self.seconds |= before
            else:
                still_out = [u for u in self._out if u != m]
                self._out = still_out + lost

    def cheapen(self) -> None:
        """Puts each job again where it costs the fewest dollars."""
        for m in sorted(self.seconds, key=lambda m: float(self._batch.left[m])):
            before = self.seconds[m]
            free = self.time.free[:, : before.shape[1]]
            there = free.copy()
            self.time.take_out(m, before)
            seconds = self.time.put(m, self._batch.usd_per_second)

            if seconds is None or (seconds - before).sum(axis=1) @ self._batch.usd_per_second > 0:
                free[...] = there
            else:
                self.seconds[m] = seconds

    def plan(self, kept: Ints) -> DeadlinePlan:
        """The plan of the kept jobs. Workers that are idle at first begin with the most urgent of
        later work.
        """
        batch = self._batch
        by_kind = [self.seconds[m].sum(axis=1) for m in kept.tolist()]
        seconds = np.array(by_kind).reshape(len(kept), -1)
        first_interval = [self.seconds[m][:, 0] for m in kept.tolist()]
        opening = np.array(first_interval).reshape(len(kept), -1)
        lengths = np.minimum(batch.left[kept, None], self.time.lengths[0])
        rates = opening / lengths
        free = batch.workers - batch.scale[kept] @ rates

        for i in np.argsort(batch.left[kept], kind="stable").tolist():
            for j in np.flatnonzero(seconds[i] > opening[i]).tolist():
                unused = 1 - rates[i].sum()
                workers = free[j] / batch.scale[kept[i]]
                more = min(unused, workers)
                if more > 0:
                    rates[i, j] += more
                    free[j] -= more * batch.scale[kept[i]]

        scaled = seconds * batch.scale[kept, None]
        dollars = (scaled * batch.usd_per_second).sum()
        usd = float(dollars)
        clipped = np.clip(rates, 0.0, 1.0)

        # Jobs run evenly in each interval until their deadlines.
        parts = []
        for i, m in enumerate(kept.tolist()):
            kind, interval = np.nonzero(self.seconds[m] > 0)
            start = self.time.starts[interval]
            span = np.minimum(batch.left[m] - start, self.time.lengths[interval])
            share = self.seconds[m][kind, interval] / span
            parts.append(Pieces(np.full(len(kind), i), kind, start, start + span, share))

        return DeadlinePlan(seconds, clipped, usd, Pieces.joined(parts), exact=False)
