"""Jobs that contradict themselves."""

from __future__ import annotations

import pytest

from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import (
    BadQueue,
    QueueTerms,
)
from tests.bidbrain.queue.test_scheduler import job, queue


def test_contradictions_are_refused() -> None:
    with pytest.raises(BadQueue, match="twice"):
        queue(job("a", 1), job("a", 1))
    with pytest.raises(
        BadQueue, match=r"'fair' is not one of a queue \(known: mean-completion, max-min-fairness"
    ):
        next_round(queue(job("a", 1), terms=QueueTerms("fair")))
    with pytest.raises(BadQueue, match="no price of 'c4'"):
        next_round(queue(job("a", 1), terms=QueueTerms("min-cost")))
    poor = next_round(
        queue(
            job("a", 10),
            terms=QueueTerms("makespan-within-budget"),
            usd_per_hour={"c4": 1.0},
            budget_usd=5.0,
        )
    )
    assert "all jobs cost at least 10 dollars" in poor.remarks[0]
    assert poor.machines
