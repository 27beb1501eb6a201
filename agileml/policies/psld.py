"""Which server serves which block: by the speed that workers measure (PSLD).

For each server a line is fitted through the recent measurements: seconds by bytes. Blocks go to the
servers that may be the fastest, one by one to where they cost least, and a few at random: so a
server that has recovered is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt

import numpy as np

CONFIDENCE = 1.645
"""Standard errors on each side of a prediction that hold it with 90% confidence."""

KEPT_MEASUREMENTS = 16
"""Measurements of a server that are kept: older ones would hide that it has changed."""

MEASUREMENTS_BEFORE_MOVE = 8
"""Measurements of each server with blocks before blocks are moved again."""

MIN_SAVED = 0.2
"""The fraction of the predicted time that a new assignment must save if speeds are not far
apart."""

MIN_SAVED_IF_UNEVEN = 0.05
"""The fraction that suffices if speeds are far apart, or if a fast server has few blocks because it
was slow: using that server again saves the others little each."""

Measurement = tuple[int, float]
"""Bytes, seconds."""


@dataclass(frozen=True, slots=True)
class Line:
    """Predicted seconds of an exchange by its bytes, with a standard error."""

    slope: float
    start: float
    error: float

    def mean(self, size: float) -> float:
        """The expected seconds."""
        return self.start + self.slope * size

    @classmethod
    def through(cls, samples: Sequence[Measurement]) -> Line:
        """Least squares; measurements of about one size only say how long a byte takes."""
        sizes, seconds = (np.array(column, float) for column in zip(*samples, strict=True))
        slope = float(seconds.sum() / max(1.0, sizes.sum()))
        start = 0.0
        if len(samples) > 2 and np.ptp(sizes) > 0.1 * sizes.mean():
            fitted = np.polyfit(sizes, seconds, 1)
            if fitted[0] > 0 and fitted[1] >= 0:
                slope = float(fitted[0])
                start = float(fitted[1])

        rest = seconds - start - slope * sizes
        error = sqrt(float((rest**2).sum()) / max(1, len(samples) - 1) / len(samples))
        return cls(slope, start, error)


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Serve these blocks there. `reason` is for the log; `short`: too few servers are fast, another
    one would help.
    """

    owners: tuple[str, ...]
    reason: str
    short: bool


@dataclass(frozen=True, slots=True)
class PSLD:
    """The measurements of all servers; an immutable value. `explores` is the paper's epsilon."""

    explores: float = 0.1
    trigger: float = 1.0
    seed: int = 0
    moves: int = 0
    samples: Mapping[str, tuple[Measurement, ...]] = field(default_factory=dict)
    fresh: Mapping[str, int] = field(default_factory=dict)
    """Measurements of each server since blocks were moved."""

    def with_measurement(self, server: str, size: int, seconds: float) -> PSLD:
        """With another measurement."""
        kept = (*self.samples.get(server, ()), (size, seconds))[-KEPT_MEASUREMENTS:]
        fresh = {**self.fresh, server: self.fresh.get(server, 0) + 1}
        return replace(self, samples={**self.samples, server: kept}, fresh=fresh)

    def propose(
        self, owners: Sequence[str], sizes: Sequence[int], servers: Sequence[str]
    ) -> tuple[PSLD, ServerPlace | None]:
        """A better assignment of blocks of these sizes, if there is one; `servers` may serve."""
        if len(servers) < 2 or any(
            self.fresh.get(owner, 0) < MEASUREMENTS_BEFORE_MOVE for owner in set(owners)
        ):
            return self, None

        lines = {name: Line.through(self.samples[name]) for name in servers if name in self.samples}
        known = list(lines.values())
        if known:
            # A server without measurements is taken for an average one.
            slope = sum(line.slope for line in known) / len(known)
            start = sum(line.start for line in known) / len(known)
            error = sum(line.error for line in known) / len(known)
            average = Line(slope, start, error)
            lines |= {name: average for name in servers if name not in lines}

        serving = set(owners)
        if not serving <= lines.keys():
            return self, None

        share = sum(sizes) / len(servers)
        seconds = [max(1e-12, lines[name].mean(share)) for name in serving]
        speeds = [1 / each for each in seconds]
        apart = max(speeds) / min(speeds) - 1

        # One line for all superior servers that may be equally fast: noise would move blocks among
        # them for ever.
        superior = candidates(lines, share, self.trigger)
        slope = sum([lines[name].slope for name in superior]) / len(superior)
        start = sum([lines[name].start for name in superior]) / len(superior)
        usual = start + slope * share
        for name in superior:
            line = lines[name]
            if abs(line.mean(share) - usual) <= CONFIDENCE * line.error:
                lines[name] = replace(line, slope=slope, start=start)

        load = _load(owners, sizes)
        few = {name for name in load if load[name] < share / 2}
        after = replace(self, moves=self.moves + 1, fresh={})
        wanted = after._assign(sizes, servers, superior, lines)
        assigned = _with_few_moves(owners, wanted, sizes)
        # The predicted times of the servers that take longest.
        before, then = (
            max(lines[owner].mean(size) for owner, size in _load(each, sizes).items())
            for each in (owners, assigned)
        )
        uneven = apart > self.trigger or few & set(superior)
        least = MIN_SAVED_IF_UNEVEN if uneven else MIN_SAVED
        if then > (1 - least) * before:
            return self, None

        why = (
            f"servers differ by a factor of {apart + 1:.1f}: {before:.3g} s of a clock become "
            f"{then:.3g} s"
        )
        short = 2 * len(superior) < len(servers)
        return after, ServerPlace(assigned, why, short)

    def _assign(
        self,
        sizes: Sequence[int],
        servers: Sequence[str],
        superior: Sequence[str],
        lines: Mapping[str, Line],
    ) -> tuple[str, ...]:
        # Explores, protects nothing.
        rng = random.Random(self.seed * 1_000_003 + self.moves)  # noqa: S311
        load = dict.fromkeys(servers, 0)
        assigned = 0
        places = [""] * len(sizes)
        share = sum(sizes) / len(superior)
        weight = sum(lines[name].mean(share) for name in superior) / len(superior)
        order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)

        for name in servers:
            # Slow servers keep a small block while that costs no time, so that they are still
            # measured.
            if (
                name not in superior
                and len(order) > 1
                and lines[name].mean(sizes[order[-1]]) <= weight
            ):
                places[order[-1]] = name
                load[name] = sizes[order.pop()]

        for block in order:
            assigned += sizes[block]
            best = rng.choice(list(servers)) if rng.random() < self.explores else ""
            # One block shows whether a server has recovered; more than it can serve in time would
            # hold up every clock.
            if not best or (load[best] and lines[best].mean(load[best] + sizes[block]) > weight):
                # Predicted time and share of the load, both relative (Algorithm 2 with equal
                # weights).
                costs: dict[str, float] = {}
                for name in superior:
                    loaded = load[name] + sizes[block]
                    seconds = lines[name].mean(loaded) / max(1e-12, weight)
                    costs[name] = seconds + loaded / max(1, assigned)
                best = min(superior, key=costs.__getitem__)
            places[block] = best
            load[best] += sizes[block]

        return tuple(places)


def superior_set(lines: Mapping[str, Line], size: float) -> list[str]:
    """The servers that may be the fastest: those whose predicted times overlap, from the fastest on
    (Algorithm 1).
    """
    upper = {name: line.mean(size) + CONFIDENCE * line.error for name, line in lines.items()}
    chosen: list[str] = []
    threshold = inf
    for name in sorted(upper, key=upper.__getitem__):
        line = lines[name]
        if line.mean(size) - CONFIDENCE * line.error >= threshold:
            break
        chosen.append(name)
        threshold = upper[name]

    return chosen


def candidates(lines: Mapping[str, Line], size: float, trigger: float) -> list[str]:
    """The superior set, and servers less than `trigger` behind its first: by the paper's own rule
    no stragglers.

    Bounds of precise measurements do not overlap: then the superior set is one server, which would
    have to serve all.
    """
    superior = superior_set(lines, size)
    most = (1 + trigger) * lines[superior[0]].mean(size)
    others = (name for name in lines if name not in superior and lines[name].mean(size) <= most)
    return [*superior, *others]


def _with_few_moves(
    owners: Sequence[str], wanted: Sequence[str], sizes: Sequence[int]
) -> tuple[str, ...]:
    """Gives each server about as many bytes as `wanted` does, and leaves blocks where they are as
    far as that allows.

    Each block that moves holds up the clock in which it does.
    """
    room = dict.fromkeys(wanted, 0)
    for name, size in zip(wanted, sizes, strict=True):
        room[name] += size
    places = list(wanted)
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)

    for staying in (True, False):
        for block in list(order):
            name = owners[block] if staying else max(room, key=room.__getitem__)
            if not staying or 2 * room.get(name, 0) >= sizes[block]:
                places[block] = name
                room[name] -= sizes[block]
                order.remove(block)

    return tuple(places)


def _load(owners: Sequence[str], sizes: Sequence[int]) -> dict[str, int]:
    load: dict[str, int] = {}
    for owner, size in zip(owners, sizes, strict=True):
        load[owner] = load.get(owner, 0) + size
    return load
