"""What is committed, what is safe, and what clocks took, by hand."""

from __future__ import annotations

from agileml.core.progress import VersionLedger
from agileml.policies.policy import ClockSums
from agileml.protocol.messages import Move, PartitionProgress, WorkDone
from agileml.work.plan import WorkPlan

PLAN = WorkPlan((4, 4), 0, 2)


def ledger() -> VersionLedger:
    return VersionLedger(2)


def test_reached_is_what_every_partition_has() -> None:
    book = ledger()
    book.add_progress(PartitionProgress("a", 1, 0, 3, backup=False))
    assert book.reached == 0
    book.add_progress(PartitionProgress("a", 1, 1, 2, backup=False))
    assert book.reached == 2
    # A report that comes late takes nothing back.
    book.add_progress(PartitionProgress("b", 1, 1, 1, backup=False))
    assert book.reached == 2


def test_safe_is_what_the_backups_have_and_where_there_are_none_what_is_served() -> None:
    book = ledger()
    for partition, clock in ((0, 3), (1, 4)):
        book.add_progress(PartitionProgress("t", 1, partition, clock, backup=False))
    assert book.safe(("", "")) == 3
    assert book.safe(("r", "r")) == -1
    book.add_progress(PartitionProgress("r", 1, 0, 1, backup=True))
    book.add_progress(PartitionProgress("r", 1, 1, 2, backup=True))
    assert book.safe(("r", "r")) == 1
    assert book.safe(("r", "")) == 1
    assert book.safe(("", "r")) == 2
    # What another node has a copy of is of no use.
    assert book.safe(("s", "r")) == -1


def test_after_going_back_nobody_has_anything_until_they_say_so() -> None:
    book = ledger()
    book.add_progress(PartitionProgress("r", 1, 0, 5, backup=True))
    book.reset(2)
    assert book.committed == [2, 2]
    assert book.safe(("r", "r")) == -1
    assert book.served == [set(), set()]


def test_settled_versions_are_forgotten() -> None:
    book = ledger()
    for clock in (1, 2, 3):
        book.add_progress(PartitionProgress("r", 1, 0, clock, backup=True))
    book.forget_before(2)
    assert book.copied[0] == {"r": {2, 3}}


def test_what_moves_stays_behind_only_as_a_copy() -> None:
    book = ledger()
    book.add_progress(PartitionProgress("r", 1, 0, 3, backup=False))
    book.add_move(0, "r", Move(1, 0, "t", "r"), stable=2)
    assert (book.served[0], book.copied[0]) == ({"t"}, {"r": {2}})
    book.add_move(0, "t", Move(1, 0, "u", "r"), stable=2)
    assert (book.served[0], book.copied[0]) == ({"u"}, {"r": {2}})
    # To its copy, and away without one.
    book.add_move(0, "u", Move(1, 0, "r", ""), stable=2)
    book.add_move(0, "r", Move(1, 0, "s", ""), stable=2)
    assert (book.served[0], book.copied[0]) == ({"s"}, {})


def test_a_clock_is_summed_and_what_came_twice_counts_as_redone() -> None:
    book = ledger()
    book.add_work(WorkDone("a", 1, 1, chunks=3, seconds=1.0, pushed_bytes=10, loss_sum=2.0, loss_count=1))
    book.add_work(WorkDone("b", 2, 1, chunks=2, seconds=2.0, pushed_bytes=20, loss_sum=4.0, loss_count=2))
    book.add_progress(PartitionProgress("s", 2, 0, 1, backup=False, pulled_bytes=7, backup_bytes=5))
    sums, redone = book.close_clock(PLAN.accept_all(1))
    assert sums == ClockSums(5, 3.0, 30, 7, 5, 6.0, 3)
    # A clock has four chunks.
    assert redone == 1


def test_work_on_a_clock_that_is_logged_already_is_redone_work_of_a_later_one() -> None:
    book = ledger()
    book.close_clock(PLAN.accept_all(1))
    book.add_work(WorkDone("a", 2, 1, 2, 1.0, 0, 0.0, 0))
    book.add_work(WorkDone("a", 2, 2, 4, 1.0, 0, 0.0, 0))
    assert book.close_clock(PLAN.accept_all(2))[1] == 2
    assert book.clocks == {}
