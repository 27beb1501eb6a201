"""Chaos: what is to befall a job, and when, as a text that a person can write.

    at clock 20 evict half warn 5s; at 30s kill 1; at clock 50 join 2; every 20s kill 1 prob 0.3

`Chaos.parse` reads it; a `FaultSchedule` plays it, the same in every engine. Which machines it strikes depends only on
the seed, the rule, how often the rule has fired, and which machines are present.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Literal

import numpy as np

from agileml.engines.script import Act, Evict, Join, KillController, KillNodes, Machine
from agileml.errors import BadArgument

EXAMPLE = "at clock 20 evict half warn 5s; at 30s kill 1; at clock 50 join 2; every 20s kill 1 prob 0.3"

WARNING = 120.0
"""Seconds of a warning that is not said to be another: what AWS gives."""

MOST_NODES = 10_000
"""More at once are taken for a slip of the finger."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_CLOCKS = ("clock", "clocks")

Share = int | Literal["half", "all"]
"""How many of the nodes that are there."""


@dataclass(frozen=True, slots=True)
class Take:
    """Nodes are evicted, with a warning of so many seconds, or killed, without (None)."""

    share: Share
    reliable: bool
    warning: float | None

    def act(self, rng: np.random.Generator, there: Sequence[Machine]) -> Act | None:
        """Whom it strikes; None if there is nobody. Who is warned is not warned again, but may be killed."""
        open_to_it = [
            one.name for one in there if one.reliable == self.reliable and (self.warning is None or not one.warned)
        ]
        if not open_to_it:
            return None
        chosen = rng.choice(len(open_to_it), self._count(len(open_to_it)), replace=False)
        names = tuple(open_to_it[index] for index in sorted(chosen))
        return KillNodes(names) if self.warning is None else Evict(names, self.warning)

    def _count(self, present: int) -> int:
        match self.share:
            case "all":
                return present
            case "half":
                return ceil(present / 2)
            case number:
                return min(number, present)


@dataclass(frozen=True, slots=True)
class Come:
    """Nodes join."""

    count: int
    reliable: bool

    def act(self, rng: np.random.Generator, there: Sequence[Machine]) -> Act:  # noqa: ARG002 - as the others
        """The same whoever is there."""
        return Join(self.count, self.reliable)


@dataclass(frozen=True, slots=True)
class LoseController:
    """The controller is killed."""

    def act(self, rng: np.random.Generator, there: Sequence[Machine]) -> Act:  # noqa: ARG002 - as the others
        """The same whoever is there."""
        return KillController()


Deed = Take | Come | LoseController


@dataclass(frozen=True, slots=True)
class Rule:
    """Something happens once at a clock or second, or again and again after so many of them."""

    when: float
    in_clocks: bool
    repeats: bool
    deed: Deed
    probability: float = 1.0

    def moment(self, occurrence: int) -> float:
        """The clock or second of an occurrence, counted from 0."""
        if self.repeats:
            return self.when * (occurrence + 1)
        return inf if occurrence else self.when


@dataclass(frozen=True, slots=True)
class Chaos:
    """A list of things to do to a job. Without any the job is left alone."""

    rules: tuple[Rule, ...] = ()
    seed: int = 0

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Chaos:
        """From a text such as `at clock 20 evict half warn 5s; every 20s kill 1 prob 0.3`."""
        if seed < 0:
            raise BadArgument(f"seed is {seed}; it must be 0 or more")
        return cls(_Reader(text).rules(), seed)


class FaultSchedule:
    """A chaos on its way through one job: a `Script`."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        self._passed = [0] * len(chaos.rules)

    def is_due(self, clock: int, seconds: float) -> bool:
        """Whether the moment of any rule has come."""
        return any(self._has_come(number, clock, seconds) for number in range(len(self._passed)))

    def due(self, clock: int, seconds: float, machines: Sequence[Machine]) -> Sequence[Act]:
        """What to do now, in the order of the rules; what was missed since the last call is made up for."""
        there, acts = list(machines), list[Act]()
        for number, rule in enumerate(self._chaos.rules):
            while self._has_come(number, clock, seconds):
                rng = _rng(self._chaos.seed, number, self._passed[number])
                self._passed[number] += 1
                act = rule.deed.act(rng, there) if rng.random() < rule.probability else None
                if act is not None:
                    acts.append(act)
                    there = _after(act, there)
        return acts

    def _has_come(self, number: int, clock: int, seconds: float) -> bool:
        rule = self._chaos.rules[number]
        return rule.moment(self._passed[number]) <= (clock if rule.in_clocks else seconds)


def _rng(seed: int, rule: int, occurrence: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(rule, occurrence))))


def _after(act: Act, there: list[Machine]) -> list[Machine]:
    """Who can still be chosen by what is done in the same moment."""
    match act:
        case KillNodes():
            return [one for one in there if one.name not in act.names]
        case Evict():
            return [replace(one, warned=one.warned or one.name in act.names) for one in there]
    return there


# -- reading ----------------------------------------------------------------------------------------------------------


class _Reader:
    """Goes through the words of a text, each of which knows where it stands."""

    def __init__(self, text: str) -> None:
        self._words = [(match[0].lower(), match.start() + 1) for match in re.finditer(r";|[^\s;]+", text)]
        self._end = len(text) + 1
        self._at = 0

    def rules(self) -> tuple[Rule, ...]:
        """Everything there is."""
        rules: list[Rule] = []
        while self._at < len(self._words):
            if not self._takes(";"):
                rules.append(self._rule())
                if self._at < len(self._words) and not self._takes(";"):
                    raise self._unexpected("';' or the end")
        return tuple(rules)

    def _rule(self) -> Rule:
        repeats = self._one_of("at", "every") == "every"
        when, in_clocks = self._period() if repeats else self._moment()
        self._takes("do")
        deed = self._deed()
        probability = self._probability() if self._takes("prob") else 1.0
        return Rule(when, in_clocks, repeats, deed, probability)

    def _moment(self) -> tuple[float, bool]:
        if self._takes(*_CLOCKS):
            return float(self._number("the number of a clock, such as 20", r"\d{1,9}")), True
        return self._seconds("clock N, or a time such as 30s"), False

    def _period(self) -> tuple[float, bool]:
        wanted = "a period above 0, such as 20s or 5 clocks"
        following = self._words[self._at + 1][0] if self._at + 1 < len(self._words) else ""
        if following in _CLOCKS:
            clocks = float(self._number(wanted, r"0*[1-9]\d{0,8}"))
            self._at += 1
            return clocks, True
        return self._seconds(wanted, lambda seconds: seconds > 0), False

    def _deed(self) -> Deed:
        what = self._one_of("evict", "kill", "join")
        if what == "join":
            count = self._count("how many nodes join, such as 2")
            return Come(count, self._takes("reliable"))
        if what == "kill" and self._takes("controller"):
            return LoseController()
        share = self._share(what)
        reliable = self._takes("reliable")
        warning = None
        if what == "evict":
            warning = self._seconds("the seconds of the warning, such as 5s") if self._takes("warn") else WARNING
        elif self._is("warn"):
            raise self._unexpected("';' or the end (a kill comes without a warning; evict gives one)")
        return Take(share, reliable or self._takes("reliable"), warning)

    def _share(self, what: str) -> Share:
        if self._takes("half"):
            return "half"
        if self._takes("all"):
            return "all"
        return self._count("a number of nodes, half or all" + (", or controller" if what == "kill" else ""))

    def _count(self, wanted: str) -> int:
        count = int(self._number(wanted, r"0*[1-9]\d{0,8}"))
        if count > MOST_NODES:
            self._at -= 1
            raise self._unexpected(f"at most {MOST_NODES:,} nodes")
        return count

    def _probability(self) -> float:
        return float(self._number("a probability from 0 to 1, such as 0.3", r"0?\.\d{1,9}|0|1(\.0*)?"))

    def _seconds(self, wanted: str, allowed: Callable[[float], bool] = lambda _: True) -> float:
        match = re.fullmatch(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)({'|'.join(_UNITS)})", self._word())
        if match is None or not allowed(float(match[1])):
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
        """Goes past one of these words, if it is the next."""
        found = self._is(*words)
        self._at += found
        return found

    def _is(self, *words: str) -> bool:
        return self._word() in words

    def _word(self) -> str:
        return self._words[self._at][0] if self._at < len(self._words) else ""

    def _unexpected(self, wanted: str) -> BadArgument:
        found, at = self._words[self._at] if self._at < len(self._words) else ("", self._end)
        what = f"{found!r}" if found else "the end"
        return BadArgument(f"chaos, character {at}: found {what}, expected {wanted}; for example: {EXAMPLE}")
