"""Chaos: faults to inject into a job, and when, and what slows its machines, written as text.

    at clock 20 evict half warn 5s; at 30s kill 1; at clock 50 join 2; every 20s kill 1 prob 0.3
    slow worker 1% by 200%; disrupt 20% every 20s by 2x; power law 7; uneven 75/25; slow server 1 to
    10%; replay FILE

`Chaos.parse` reads it; a `FaultSchedule` applies it, in the same way in every engine. Which
machines it chooses depends only on the seed, the rule, how often the rule has fired, and which
machines are present.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from agileml.errors import BadArgument
from agileml.slowdowns import Disrupt, PowerLaw, Replay, Slowdown, SlowServer, SlowWorker, Uneven
from agileml.trainer import random_generator


@dataclass(frozen=True, slots=True)
class Evict:
    """Machines are warned, and taken away after `seconds`; None: at once, without warning."""

    names: tuple[str, ...]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Join:
    """Machines are added."""

    count: int
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class KillController:
    """The controller is killed; the job loop restarts it."""


@dataclass(frozen=True, slots=True)
class RunningMachine:
    """A running machine, as a script sees it."""

    name: str
    reliable: bool
    warned: bool


class Script(Protocol):
    """Decides which faults to inject into a job."""

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        """The faults to inject now.

        Called after every finished clock and many times a second. `clock` is the last finished one,
        `seconds` the time since the job began; `machines` are in the order in which they joined.
        Each fault is returned once.
        """
        ...


EXAMPLE = (
    "at clock 20 evict half warn 5s; at 30s kill 1; at clock 50 join 2; every 20s kill 1 prob 0.3"
)


WARNING_SECONDS = 120.0
"""Default seconds of an eviction warning, as AWS gives."""


MAX_NODES = 10_000
"""A larger number is taken for a typing error."""


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


_CLOCKS = ("clock", "clocks")


FaultExtent = int | Literal["half", "all"]
"""How many of the present nodes."""


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Nodes are evicted after a warning of `warning` seconds, or killed without one (None)."""

    share: FaultExtent
    reliable: bool
    warning: float | None

    def act(self, rng: np.random.Generator, present: Sequence[RunningMachine]) -> Act | None:
        """Chooses nodes; None if there are none. A warned node is not warned again, but may be
        killed.
        """
        candidates = [
            machine.name
            for machine in present
            if machine.reliable == self.reliable and (self.warning is None or not machine.warned)
        ]

        if not candidates:
            return None

        count = len(candidates)
        if self.share == "half":
            count = ceil(count / 2)
        elif isinstance(self.share, int):
            count = min(self.share, count)
        chosen = rng.choice(len(candidates), count, replace=False)
        names = tuple(candidates[index] for index in sorted(chosen))
        return Evict(names, self.warning)


FaultKind = RemoveNodes | Join | KillController


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault that happens once, at clock or second `when`, or repeatedly, every `when` clocks or
    seconds.
    """

    when: float
    in_clocks: bool
    repeats: bool
    fault: FaultKind
    probability: float = 1.0

    def moment(self, occurrence: int) -> float:
        """The clock or second of an occurrence, counted from 0."""
        if self.repeats:
            return self.when * (occurrence + 1)
        return inf if occurrence else self.when


@dataclass(frozen=True, slots=True)
class Chaos:
    """The rules for injecting faults into a job, and what slows its machines."""

    rules: tuple[Rule, ...] = ()
    seed: int = 0
    slowdowns: tuple[Slowdown, ...] = ()

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Chaos:
        """Parses a text such as `at clock 20 evict half warn 5s; every 20s kill 1 prob 0.3`."""
        if seed < 0:
            raise BadArgument(f"seed is {seed}; it must be 0 or more")
        sentences = _Parser(text).sentences()
        rules = tuple(sentence for sentence in sentences if isinstance(sentence, Rule))
        slowdowns = tuple(sentence for sentence in sentences if not isinstance(sentence, Rule))
        return cls(rules, seed, slowdowns)


class FaultSchedule:
    """The faults of one job: a `Script` that remembers how often each rule has fired."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        self._fired = [0] * len(chaos.rules)

    def is_due(self, clock: int, seconds: float) -> bool:
        """Whether any rule has to fire."""
        return any(self._fires(number, clock, seconds) for number in range(len(self._fired)))

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        """The faults to inject now, in the order of the rules, including those missed since the
        last call.
        """
        if not self.is_due(clock, seconds):
            return []

        present = list(machines)
        acts = list[Act]()
        for number, rule in enumerate(self._chaos.rules):
            while self._fires(number, clock, seconds):
                rng = random_generator(self._chaos.seed, (number, self._fired[number]))
                self._fired[number] += 1
                if rng.random() >= rule.probability:
                    continue
                fault = rule.fault
                act = fault.act(rng, present) if isinstance(fault, RemoveNodes) else fault
                if act is not None:
                    acts.append(act)

                # The machines that the next rules of the same moment can choose from.
                if isinstance(act, Evict) and act.seconds is None:
                    present = [machine for machine in present if machine.name not in act.names]
                elif isinstance(act, Evict):
                    present = [
                        replace(machine, warned=machine.warned or machine.name in act.names)
                        for machine in present
                    ]

        return acts

    def _fires(self, number: int, clock: int, seconds: float) -> bool:
        rule = self._chaos.rules[number]
        return rule.moment(self._fired[number]) <= (clock if rule.in_clocks else seconds)


QUIET = FaultSchedule(Chaos())
"""A script without faults."""


# -- parsing ---------------------------------------------------------------------------------------


class _Parser:
    """Parses a text word by word, with the position of each."""

    def __init__(self, text: str) -> None:
        self._as_written = [
            (match[0], match.start() + 1) for match in re.finditer(r";|[^\s;]+", text)
        ]
        self._words = [(word.lower(), at) for word, at in self._as_written]
        self._end = len(text) + 1
        self._at = 0

    def sentences(self) -> tuple[Rule | Slowdown, ...]:
        """All rules and slowdowns of the text."""
        sentences: list[Rule | Slowdown] = []
        while self._at < len(self._words):
            if not self._takes(";"):
                sentences.append(self._sentence())
                if self._at < len(self._words) and not self._takes(";"):
                    raise self._unexpected("';' or the end")
        return tuple(sentences)

    def _sentence(self) -> Rule | Slowdown:
        match self._one_of("at", "every", "slow", "disrupt", "power", "uneven", "replay"):
            case "slow":
                return self._slow()
            case "disrupt":
                share = self._percent("the share of the machines, such as 20%", most=100)
                self._one_of("every")
                seconds = self._seconds("a period above 0, such as 20s", above_zero=True)
                self._one_of("by")
                times = self._number(
                    "how much slower they get, such as 2x", r"\d{1,4}(\.\d{1,4})?x"
                )
                return Disrupt(share, seconds, float(times[:-1]))
            case "power":
                self._one_of("law")
                exponent = float(
                    self._number("an exponent above 2, such as 7", r"\d{1,4}(\.\d{1,4})?")
                )
                if exponent <= 2:
                    self._at -= 1
                    raise self._unexpected("an exponent above 2, such as 7")
                return PowerLaw(exponent)
            case "uneven":
                heavy, _, light = self._number(
                    "two shares that make 100, such as 75/25", r"\d{1,2}/\d{1,2}"
                ).partition("/")
                if int(heavy) + int(light) != 100:
                    self._at -= 1
                    raise self._unexpected("two shares that make 100, such as 75/25")
                return Uneven(int(heavy) / 100)
            case "replay":
                if not self._word() or self._is(";"):
                    raise self._unexpected("the file with the times of workers")
                name = self._as_written[self._at][0]
                self._at += 1
                return Replay.read(Path(name))
            case word:
                return self._rule(repeats=word == "every")

    def _slow(self) -> SlowWorker | SlowServer:
        if self._one_of("worker", "server") == "worker":
            chance = self._percent("the chance at each tenth of a clock, such as 1%", most=100)
            self._one_of("by")
            return SlowWorker(chance, self._percent("how much slower it gets, such as 200%"))

        count = self._count("how many servers are slow, such as 1")
        self._one_of("to")
        left = self._percent("the remaining bandwidth, such as 10%", most=100)
        if not left:
            self._at -= 1
            raise self._unexpected(
                "more than 0%: a server without bandwidth is lost, as by `kill 1`"
            )

        until = self._seconds("a time such as 60s") if self._takes("until") else inf
        return SlowServer(count, left, until)

    def _percent(self, wanted: str, most: float = inf) -> float:
        percent = float(self._number(wanted, r"\d{1,6}(\.\d{1,6})?%")[:-1])
        if percent > most:
            self._at -= 1
            raise self._unexpected(f"at most {most:g}%")
        return percent / 100

    def _rule(self, *, repeats: bool) -> Rule:
        in_clocks = True
        if repeats:
            wanted = "a period above 0, such as 20s or 5 clocks"
            following = self._words[self._at + 1][0] if self._at + 1 < len(self._words) else ""
            in_clocks = following in _CLOCKS
            if in_clocks:
                when = float(self._number(wanted, r"0*[1-9]\d{0,8}"))
                self._at += 1
            else:
                when = self._seconds(wanted, above_zero=True)
        elif self._takes(*_CLOCKS):
            when = float(self._number("the number of a clock, such as 20", r"\d{1,9}"))
        else:
            when = self._seconds("clock N, or a time such as 30s")
            in_clocks = False

        self._takes("do")
        fault = self._fault()
        if self._takes("prob"):
            probability = float(
                self._number("a probability from 0 to 1, such as 0.3", r"0?\.\d{1,9}|0|1(\.0*)?")
            )
        else:
            probability = 1.0

        return Rule(when, in_clocks, repeats, fault, probability)

    def _fault(self) -> FaultKind:
        what = self._one_of("evict", "kill", "join")
        if what == "join":
            count = self._count("how many nodes join, such as 2")
            return Join(count, self._takes("reliable"))
        if what == "kill" and self._takes("controller"):
            return KillController()

        share: FaultExtent
        if self._takes("half"):
            share = "half"
        elif self._takes("all"):
            share = "all"
        else:
            share = self._count(
                "a number of nodes, half or all" + (", or controller" if what == "kill" else "")
            )

        reliable = self._takes("reliable")
        warning = None
        if what == "evict":
            warned = self._takes("warn")
            warning = (
                self._seconds("the seconds of the warning, such as 5s")
                if warned
                else WARNING_SECONDS
            )
        elif self._is("warn"):
            raise self._unexpected(
                "';' or the end (a kill comes without a warning; evict gives one)"
            )

        return RemoveNodes(share, reliable or self._takes("reliable"), warning)

    def _count(self, wanted: str) -> int:
        count = int(self._number(wanted, r"0*[1-9]\d{0,8}"))
        if count > MAX_NODES:
            self._at -= 1
            raise self._unexpected(f"at most {MAX_NODES:,} nodes")
        return count

    def _seconds(self, wanted: str, *, above_zero: bool = False) -> float:
        match = re.fullmatch(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)({'|'.join(_UNITS)})", self._word())
        if match is None or (above_zero and not float(match[1])):
            raise self._unexpected(wanted)
        self._at += 1
        return float(match[1]) * _UNITS[match[2]]

    def _number(self, wanted: str, pattern: str) -> str:
        word = self._word()
        if re.fullmatch(pattern, word, re.ASCII) is None:
            raise self._unexpected(wanted)
        self._at += 1
        return word

    def _one_of(self, *words: str) -> str:
        word = self._word()
        if word not in words:
            raise self._unexpected(" or ".join((", ".join(words[:-1]), words[-1])))
        self._at += 1
        return word

    def _takes(self, *words: str) -> bool:
        """Skips the next word if it is one of these; returns whether it did."""
        matches = self._is(*words)
        self._at += matches
        return matches

    def _is(self, *words: str) -> bool:
        return self._word() in words

    def _word(self) -> str:
        if self._at < len(self._words):
            return self._words[self._at][0]
        return ""

    def _unexpected(self, wanted: str) -> BadArgument:
        word, at = self._words[self._at] if self._at < len(self._words) else ("", self._end)
        actual = f"{word!r}" if word else "the end"
        return BadArgument(
            f"chaos, character {at}: found {actual}, expected {wanted}; for example: {EXAMPLE}"
        )


Act = Evict | Join | KillController
