"""Shards that change hands."""

from __future__ import annotations

import pytest

from agileml.errors import InvalidTransition
from agileml.protocol.actions import Chunk, Compute, Send
from agileml.protocol.messages import (
    Adopted,
    Enter,
    GiveShard,
    TakeShard,
)
from agileml.work import Ranges
from tests.agileml.roles.test_worker import TABLE, Harness, begun, pushes, tasks

ALL = Ranges(((0, 2),))
"""All chunks of a shard in a clock."""


def test_a_shard_is_given_away_between_clocks_or_at_once() -> None:
    harness, task = begun()
    # Orders wait for the current chunk; afterwards its shard is in the middle of a clock.
    assert harness.receive(GiveShard(1, 0, "v", now=False), GiveShard(1, 1, "u", now=True)) == []
    result = harness.finish(task)
    assert result == [Send("u", TakeShard(1, 1, 1, ALL)), Compute(Chunk(1, 1, 0, 1, 2, 4, 0))]
    result = harness.finish(Compute(Chunk(1, 1, 0, 1, 2, 4, 0)))
    assert result[0] == Send("v", TakeShard(1, 0, 2, ALL))
    assert [push.covers for _, push in pushes(result)] == [((0, 0, 2),)] * 2
    assert not harness.worker.shards
    assert not harness.worker.contributions.open


def test_a_shard_is_continued_where_it_was() -> None:
    harness, task = begun()
    result = harness.receive(TakeShard(1, 2, 1, Ranges(((1, 2),))))
    assert result == []
    result = harness.work(harness.finish(task))
    assert result[0].message == Adopted("w", 1, 2)  # type: ignore[union-attr]
    assert tasks(result) == [(1, 1, 0), (1, 0, 1), (1, 1, 1), (1, 2, 1)]
    assert pushes(result)[0][1].covers == ((0, 0, 2), (1, 0, 2), (2, 1, 2))


def test_a_shard_that_is_missing_cannot_be_given_away() -> None:
    harness = Harness()
    harness.receive(Enter(1, TABLE, 9, 0))
    with pytest.raises(InvalidTransition, match="w is to give shard 2 to v, but does not have it"):
        harness.receive(GiveShard(1, 2, "v", now=False))
    # The order may cross with a shard that was promised before.
    assert harness.receive(GiveShard(1, 2, "v", now=True)) == []
