"""The log of a framework's training as an array of sums and weights."""

from __future__ import annotations

import pytest

from agileml.errors import BadArgument
from agileml.torch.course import TRAINING, Course, LoggedRow, LogKey, LogTable

COURSE = Course(batches=2, accumulate=1, steps=4, validated=(2,))
LOSS = LogKey(TRAINING, "loss", on_step=True, on_epoch=True)
COUNT = LogKey(TRAINING, "count", on_step=False, on_epoch=True, is_sum=True)
SCORE = LogKey(0, "score", on_step=False, on_epoch=True, suffix="/dataloader_idx_0")


def test_a_name_that_is_logged_for_both_says_for_which() -> None:
    assert [LOSS.named(step=True), LOSS.named(step=False)] == ["loss_step", "loss_epoch"]
    assert SCORE.named(step=False) == "score/dataloader_idx_0"


def test_rows_are_in_the_order_in_which_they_are_logged() -> None:
    table = LogTable("trainer", COURSE, (LOSS, SCORE), logged=(1, 3), loaders=(2,))
    assert list(table.rows) == [
        LoggedRow(1, "step"),
        LoggedRow(2, "validation"),
        LoggedRow(2, "epoch"),
        LoggedRow(3, "step"),
        LoggedRow(4, "epoch"),
    ]


def test_values_of_an_epoch_are_means_or_sums_and_what_has_no_weight_is_left_out() -> None:
    table = LogTable("trainer", COURSE, (LOSS, COUNT), logged=())
    log = table.empty()
    row = table.rows[LoggedRow(2, "epoch")]
    for key, total, weight in ((LOSS, 6.0, 4.0), (COUNT, 10.0, 2.0)):
        column = table.columns[key.place, key.name]
        log[row, column : column + 2] = total, weight
    assert list(table.read(log)) == [(LoggedRow(2, "epoch"), {"loss_epoch": 1.5, "count": 10.0})]


def test_a_log_that_takes_too_much_memory_is_refused() -> None:
    course = Course(batches=10**6, accumulate=1, steps=2 * 10**6)
    keys = tuple(LogKey(TRAINING, f"v{n}", on_step=True, on_epoch=False) for n in range(20))
    with pytest.raises(BadArgument, match="log less often"):
        LogTable("trainer", course, keys, logged=range(1, 2 * 10**6)).empty()
