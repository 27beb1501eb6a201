"""Committed versions, safe versions and the sums of clocks, by hand."""

from __future__ import annotations

from agileml.core.recovery import VersionLedger
from agileml.policies.stage import ClockSums
from agileml.protocol.messages import Move, PartitionProgress, WorkDone
from agileml.work import WorkPlan

PLAN = WorkPlan((4, 4), 0, 2)


def ledger() -> VersionLedger:
    return VersionLedger(2)


def test_reached_is_the_version_that_every_partition_has() -> None:
    book = ledger()
    book.add_progress(PartitionProgress("a", 1, 0, 3, backup=False))
    assert book.reached == 0
    book.add_progress(PartitionProgress("a", 1, 1, 2, backup=False))
    assert book.reached == 2
    # A late report does not lower it.
    book.add_progress(PartitionProgress("b", 1, 1, 1, backup=False))
    assert book.reached == 2


def test_safe_is_the_version_of_the_backups_or_of_servers_without_backup() -> None:
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
    # Copies on other nodes do not count.
    assert book.safe(("s", "r")) == -1


def test_after_a_reset_no_copy_is_known_until_it_is_reported() -> None:
    book = ledger()
    book.add_progress(PartitionProgress("r", 1, 0, 5, backup=True))
    book.reset(2)
    assert book.committed == [2, 2]
    assert book.safe(("r", "r")) == -1
    assert book.served == [set(), set()]


def test_copies_of_old_versions_are_forgotten() -> None:
    book = ledger()
    for clock in (1, 2, 3):
        book.add_progress(PartitionProgress("r", 1, 0, clock, backup=True))
    book.forget_before(2)
    assert book.copied[0] == {"r": {2, 3}}


def test_a_moved_partition_remains_only_on_its_backup() -> None:
    book = ledger()
    book.add_progress(PartitionProgress("r", 1, 0, 3, backup=False))
    book.add_move(0, "r", Move(1, 0, "t", "r"), stable=2)
    assert (book.served[0], book.copied[0]) == ({"t"}, {"r": {2}})
    book.add_move(0, "t", Move(1, 0, "u", "r"), stable=2)
    assert (book.served[0], book.copied[0]) == ({"u"}, {"r": {2}})
    # To its backup, and on without one.
    book.add_move(0, "u", Move(1, 0, "r", ""), stable=2)
    book.add_move(0, "r", Move(1, 0, "s", ""), stable=2)
    assert (book.served[0], book.copied[0]) == ({"s"}, {})


def test_reports_of_a_clock_are_summed_and_repeated_chunks_count_as_redone() -> None:
    book = ledger()
    book.add_work(
        WorkDone("a", 1, 1, chunks=3, seconds=1.0, pushed_bytes=10, loss_sum=2.0, loss_count=1)
    )
    book.add_work(
        WorkDone("b", 2, 1, chunks=2, seconds=2.0, pushed_bytes=20, loss_sum=4.0, loss_count=2)
    )
    book.add_progress(PartitionProgress("s", 2, 0, 1, backup=False, pulled_bytes=7, backup_bytes=5))
    sums, redone = book.close_clock(PLAN.accept_all(1))
    assert sums == ClockSums(5, 3.0, 30, 7, 5, 6.0, 3)
    # A clock has four chunks.
    assert redone == 1


def test_repeated_work_on_a_closed_clock_counts_in_a_later_one() -> None:
    book = ledger()
    book.close_clock(PLAN.accept_all(1))
    book.add_work(WorkDone("a", 2, 1, 2, 1.0, 0, 0.0, 0))
    book.add_work(WorkDone("a", 2, 2, 4, 1.0, 0, 0.0, 0))
    assert book.close_clock(PLAN.accept_all(2))[1] == 2
    assert book.clocks == {}
