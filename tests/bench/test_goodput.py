"""The arithmetic, the schedules and the recorder of the benchmark of goodput."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from bench.goodput import schedule
from bench.goodput.__main__ import Row, cells, losses, missing_of, table
from bench.goodput.recorder import Commit, Goodput, Recorder, measured
from bench.goodput.supervisor import Outcome
from bench.goodput.workload import BATCH, NODES, WIDTHS, dataset, network, share


def _steady(first: int, last: int, from_: float, every: float = 0.1) -> list[Commit]:
    return [
        Commit(from_ + every * number, "all", step, 10)
        for number, step in enumerate(range(first, last + 1))
    ]


def test_without_faults_all_commits_are_useful() -> None:
    done = measured(_steady(1, 101, 0.0), [], 2.05, 8.05)
    assert (done.useful, done.redone, done.pauses) == (600, 0, ())
    assert done.step_seconds == pytest.approx(0.1)


def test_steps_after_the_checkpoint_are_redone_and_useful_only_once() -> None:
    commits = [*_steady(1, 50, 0.0), *_steady(41, 100, 7.0)]
    done = measured(commits, [4.95], -1.0, 13.0)
    assert (done.useful, done.redone) == (1000, 100)
    # Steps 41 to 50 are no progress: the pause lasts until step 51, at 8.0 s, without the time of a
    # step.
    assert list(done.pauses) == pytest.approx([8.0 - 4.9 - 0.1])


def test_the_steps_that_a_rollback_took_away_do_not_count_if_the_end_comes_first() -> None:
    done = measured([*_steady(1, 50, 0.0), *_steady(41, 45, 7.0)], [4.95], -1.0, 8.0)
    assert (done.useful, done.redone) == (450, 100)


def test_what_was_lost_and_not_made_again_by_the_end_does_not_count() -> None:
    """The trainer reports a step once: what it made again is known from the next step, here after
    the end.
    """
    commits = [*_steady(1, 50, 0.0), Commit(9.0, "all", 51, 10, redone=80, again=80)]
    assert measured(commits, [4.95], -1.0, 8.0).useful == 420
    assert measured(commits, [4.95], -1.0, 9.5).useful == 510


def test_a_pause_belongs_to_one_fault() -> None:
    """The second fault comes in the pause of the first, and after it nothing else happens."""
    commits = [*_steady(1, 20, 0.0), *_steady(21, 60, 5.0)]
    assert list(measured(commits, [2.0, 3.0], -1.0, 8.9).pauses) == pytest.approx([5.0 - 1.9 - 0.1])


def test_a_pause_belongs_to_the_fault_just_before_it_though_another_one_comes_in_it() -> None:
    """The step that was about to end when the first machine was lost still does."""
    commits = [*_steady(1, 20, 0.0), *_steady(21, 60, 5.0)]
    assert list(measured(commits, [1.85, 3.0], -1.0, 8.9).pauses) == pytest.approx(
        [5.0 - 1.9 - 0.1]
    )


def test_a_system_that_does_not_come_back_pauses_until_the_end() -> None:
    pauses = measured(_steady(1, 20, 0.0), [2.0], -0.1, 9.0).pauses
    assert list(pauses) == pytest.approx([9.0 - 1.9 - 0.1])


def test_replicas_are_credited_with_their_own_samples() -> None:
    commits = [
        *(Commit(0.1 * step, part, step, 64) for step in range(1, 11) for part in ("0", "1", "2")),
        *(Commit(0.1 * step, part, step, 64) for step in range(11, 21) for part in ("0", "1")),
        Commit(2.05, "0", 20, 0, redone=64),
    ]
    done = measured(commits, [1.05], 0.0, 3.0)
    assert (done.useful, done.redone) == (10 * 192 + 10 * 128, 64)


@pytest.mark.parametrize("kind", schedule.KINDS)
def test_a_schedule_is_drawn_from_its_seed(kind: str) -> None:
    events = schedule.drawn(kind, 48.0, 1)
    assert events == schedule.drawn(kind, 48.0, 1)
    assert bool(events) == (kind != "none")
    assert all(
        0 <= event.second < 48.0 and set(event.nodes) <= {*range(NODES), schedule.COORDINATOR}
        for event in events
    )
    assert any(schedule.COORDINATOR in event.nodes for event in events) == (kind == "coordinator")
    assert [event.second for event in events] == sorted(event.second for event in events)


@pytest.mark.parametrize("seconds", [18.0, 48.0, 200.0])
def test_each_node_joins_once(seconds: float) -> None:
    joining = [node for event in schedule.drawn("joins", seconds, 1) for node in event.nodes]
    assert joining == [*range(1, NODES)]
    assert not {*joining} & {*schedule.first_nodes("joins")}


def test_kills_are_at_least_five_and_hit_every_node() -> None:
    drawn = [schedule.drawn("kills", 48.0, seed) for seed in range(50)]
    assert {len(events) >= 5 for events in drawn} == {True}
    hits = [event.nodes[0] for events in drawn for event in events]
    assert all(hits.count(node) > len(hits) / 4 for node in range(NODES))
    assert all(len(event.nodes) == 2 for event in schedule.drawn("double", 48.0, 1))


@pytest.mark.parametrize(
    ("size", "near"), [("19k", 19_000), ("1m", 1_000_000), ("16m", 16_000_000)]
)
def test_networks_have_the_size_in_their_name(size: str, near: int) -> None:
    assert set(WIDTHS) == {"19k", "1m", "16m"}
    assert sum(parameter.numel() for parameter in network(size).parameters()) == pytest.approx(
        near, rel=0.02
    )


def test_the_shares_of_nodes_make_up_the_batch() -> None:
    data = dataset()
    for step in (1, 43, 44):
        whole, _ = share(data, step, 0, 1)
        parts = [share(data, step, number, NODES)[0] for number in range(NODES)]
        assert len(whole) == BATCH
        assert whole.tolist() == [row for part in parts for row in part.tolist()]


def test_the_recorder_stamps_what_arrives_and_keeps_the_first_loss() -> None:
    recorder = Recorder()
    host, port = recorder.address.split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for fields in (
            {"step": 1, "samples": 10, "part": "0", "redone": 0},
            {"step": 1, "loss": 0.5},
            {"step": 2, "loss": 0.4},
        ):
            sender.sendto(json.dumps(fields).encode(), (host, int(port)))
    while recorder.final is None:
        recorder.receive(0.1)
    recorder.close()
    (commit,) = recorder.commits
    assert (commit.step, commit.samples, commit.part) == (1, 10, "0")
    assert commit.at > 1.7e9
    assert recorder.final.loss == 0.5


def test_what_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    assert "--torchft PYTHON is missing" in missing_of("")
    assert "No such file" in missing_of(str(tmp_path / "python"))
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\necho trace >&2\necho no torchft >&2\nexit 1\n")
    bare.chmod(0o700)
    assert missing_of(str(bare)).startswith(f"--torchft {bare}: no torchft (pip install")


def test_cells_without_torchft_leave_it_out_and_unknown_ones_are_refused() -> None:
    assert list(cells(["1m:kills:torchft-hand-gloo,ddp"], with_torchft=False)) == [
        ("1m", "kills", "ddp")
    ]
    with pytest.raises(SystemExit, match="there is no 2m:kills:ddp"):
        list(cells(["2m:kills:ddp"], with_torchft=True))
    with pytest.raises(SystemExit, match="command rents all nodes at once"):
        list(cells(["1m:joins:command"], with_torchft=True))


def _row(seed: int, useful: int) -> Row:
    return Row(
        "1m", "kills", "trainer", Outcome(Goodput(useful, seed, 0.1, (seed,)), 2.0, 1.0, 5, 1, None)
    )


def test_of_several_runs_of_a_cell_the_table_has_the_median_the_extremes_and_all_pauses() -> None:
    text = table([_row(1, 400), _row(2, 100), _row(3, 200)], {})
    assert text.count("| trainer |") == 1
    assert (
        "| 1m | kills | trainer | 100 (50 to 200 in 3) | 200 | 2.00 s, 3.00 s | 3 | none | 3 |"
        in text
    )
    assert "| trainer | 150 (100 to 200 in 2) |" in table([_row(1, 400), _row(3, 200)], {}), (
        "not the lower one"
    )


def test_a_system_that_did_not_begin_has_a_row_and_what_others_took_is_said() -> None:
    busy = Row(
        "1m",
        "kills",
        "trainer",
        Outcome(Goodput(1, 0, 0.1, ()), 2.0, 1.0, 5, 0, None, others_share=0.2),
    )
    text = table([busy], {}, [("1m", "kills", "torchft-ddp-baby")])
    assert "| 1m | kills | torchft-ddp-baby | did not begin to train |" in text
    assert text.endswith("Other processes took up to 20% of the processors' time.")


def test_an_empty_table_has_its_head() -> None:
    assert table([], losses([])).startswith("| network | schedule | system |")
