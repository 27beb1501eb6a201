"""Loans between two workers under every interleaving of their messages and chunks: each chunk is
done once.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
import pytest

from agileml.params.layout import Layout
from agileml.params.view import ParamCache
from agileml.policies.flexrr import FlexRR, Reassignment
from agileml.protocol.actions import CONTROLLER, Action, Compute, Send
from agileml.protocol.messages import (
    CancelHelp,
    DoThis,
    GiveShard,
    HelpEnded,
    HelpGroup,
    Push,
    Recover,
    Table,
    TakeShard,
)
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.work_exchange import Helping
from agileml.roles.worker import Worker
from agileml.trainer import initial_model, plan_of
from agileml.work import CountedWork
from tests.agileml.toys import Scripted

CHUNKS = 4
"""Of each of the two shards; the slow worker has shard 0, the fast one shard 1."""

SLOW, FAST = "slow", "fast"
PEER = {SLOW: FAST, FAST: SLOW}
TABLE = Table(1, ("server",), ("",), (SLOW, FAST))


@dataclass
class Pair:
    """Two workers, their links, and the chunks that reached the server."""

    trace: tuple[str, ...] = ()
    checks: int = 100
    """Chunks of a clock from which workers expect the progress of others."""
    workers: dict[str, Worker] = field(default_factory=dict)
    links: dict[str, deque[object]] = field(default_factory=lambda: {SLOW: deque(), FAST: deque()})
    """Messages on their way, by receiver."""
    computing: dict[str, Compute] = field(default_factory=dict)
    pushed: Counter[tuple[int, int]] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for name in (SLOW, FAST):
            self.workers[name] = self._worker(name)
            self._receive(name, Recover(1, 0, TABLE, ("init",), 1))
            self.workers[name].chunk_runner.cache.clocks = [0]
        self._receive(FAST, HelpGroup(1, (SLOW,)))
        self._receive(SLOW, HelpGroup(1, (FAST,)))

    def _worker(self, name: str) -> Worker:
        trainer = Scripted(shards=lambda: [range(CHUNKS)] * 2, init=lambda _: {"w": np.zeros(1)})
        trainer.chunk = 1  # type: ignore[attr-defined]
        work, out = CountedWork(plan_of(trainer, trainer.shards())), list[Action]()
        cache = ParamCache(Layout.cut(initial_model(trainer, 0), 1))
        worker = Worker(
            name,
            work,
            ChunkRunner(trainer, trainer.shards(), cache, seed=0, ordered=True, sample=0),
            0,
            8,
            out,
        )
        policy = FlexRR(Reassignment(checks=self.checks))
        worker.helping = Helping(worker.context, work, worker.shards, lambda: 0.0, policy)
        return worker

    def choices(self) -> list[str]:
        return [f"finish {name}" for name in self.computing] + [
            f"deliver {name}" for name, link in self.links.items() if link
        ]

    def take(self, choice: str) -> None:
        what, _, name = choice.partition(" ")
        if what == "finish":
            work = self.computing.pop(name).work
            self.workers[name].receive(WorkResult(work, 1.0, 0.0, 0))
            self._carry_out(name)
        elif what == "give":
            # At the end of the clock at first, and then at once: its worker has been warned in the
            # meantime.
            self._receive(SLOW, GiveShard(1, 0, FAST, now=False))
            self._receive(SLOW, GiveShard(1, 0, FAST, now=True))
        else:
            self._receive(name, self.links[name].popleft())

    def _receive(self, name: str, message: object) -> None:
        self.workers[name].receive(message)  # type: ignore[arg-type]
        self._carry_out(name)

    def _carry_out(self, name: str) -> None:
        actions = list(self.workers[name].context.out)
        self.workers[name].context.out.clear()
        for action in actions:
            match action:
                case Compute():
                    assert name not in self.computing
                    self.computing[name] = action
                case Send(to=to, message=Push() as push) if to == "server":
                    for shard, first, last in push.covers:
                        self.pushed.update((shard, chunk) for chunk in range(first, last))
                case Send(to=to) if to in self.links:
                    self.links[to].append(action.message)
                    self.seen[type(action.message).__name__] += 1
                case Send(to=to):
                    assert to in (CONTROLLER, "server")

    @property
    def state(self) -> str:
        parts: list[object] = [self.computing, self.links, sorted(self.pushed.items())]
        for worker in self.workers.values():
            helping = worker.helping
            assert helping is not None
            parts += [
                sorted(worker.shards.items()),
                helping.loans.lent,
                helping.errands,
                helping.pace,
                helping.policy.heard,
                worker.handovers.due,
            ]
        return repr(parts)

    def check_end(self) -> None:
        everything = {(shard, chunk) for shard in range(2) for chunk in range(CHUNKS)}
        assert self.pushed == dict.fromkeys(everything, 1), f"{self.trace}: {self.pushed}"
        for worker in self.workers.values():
            assert worker.helping is not None
            assert not worker.helping.loans.lent
            assert not worker.helping.errands
            assert all(left.clock == 2 for left in worker.shards.values())


def ends(after: int | None, checks: int = 100) -> Counter[str]:
    """Follows every interleaving to its end; with `after`, the slow worker loses its shard after
    that many steps.
    """
    kinds: Counter[str] = Counter()
    known: set[str] = set()
    open_: list[tuple[str, ...]] = [()]
    while open_:
        trace = open_.pop()
        pair = Pair(trace, checks)
        for choice in trace:
            pair.take(choice)
        choices = ["give shard"] if len(trace) == after else pair.choices()
        kinds |= pair.seen
        if not choices:
            pair.check_end()
        for choice in choices:
            again = (
                (len(trace) <= after, pair.state, choice)
                if after is not None
                else (pair.state, choice)
            )
            if repr(again) not in known:
                known.add(repr(again))
                open_.append((*trace, choice))
    return kinds


@pytest.mark.parametrize("checks", [100, 1])
def test_every_interleaving_of_two_workers_does_each_chunk_once(checks: int) -> None:
    kinds = ends(None, checks)
    assert kinds[DoThis.__name__] >= 2, "nothing was lent"
    assert kinds[CancelHelp.__name__]
    assert kinds[HelpEnded.__name__]


@pytest.mark.parametrize("after", [5])
def test_a_shard_changes_hands_while_a_part_of_it_is_lent(after: int) -> None:
    assert ends(after)[TakeShard.__name__] == 1
