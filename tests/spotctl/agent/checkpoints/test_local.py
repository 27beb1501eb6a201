"""Checkpoints are complete and unchanged, or not used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spotctl.agent import BadCheckpoint, Checkpoints, TrainingPosition

NEWEST = "step-000000000030-00"
HALF_WRITTEN = ".writing-step-000000000009-00"


def saver(text: str) -> Callable[[Path], None]:
    def save(folder: Path) -> None:
        (folder / "deep").mkdir()
        (folder / "deep" / "model").write_text(text)
        (folder / "optimizer").write_text(text * 2)

    return save


def read(path: Path) -> str:
    return (path / "deep" / "model").read_text()


@pytest.fixture
def three(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for step in (1, 2, 30):
        checkpoints.write(TrainingPosition(step // 10, step % 10, step), saver(f"step {step}"))
    return checkpoints


def test_the_newest_is_found_and_old_ones_are_removed(three: Checkpoints) -> None:
    assert (found := three.newest()) is not None
    assert found[0] == TrainingPosition(3, 0, 30)
    assert read(found[1]) == "step 30"
    assert sorted(path.name for path in three.folder.iterdir()) == [
        "step-000000000002-00",
        "step-000000000030-00",
    ]
    assert read(three.at(2)[1]) == "step 2"
    with pytest.raises(
        BadCheckpoint, match="no complete checkpoint of step 1, where other ranks resume"
    ):
        three.at(1)


def truncate(path: Path) -> None:
    path.write_text("")


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
@pytest.mark.parametrize("name", ["deep/model", "optimizer", "manifest.json"])
def test_a_damaged_one_is_ignored_and_the_previous_one_used(
    three: Checkpoints, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(three.folder / NEWEST / name)
    assert (found := three.newest()) is not None
    assert found[0].step == 2
    assert "ignoring checkpoint" in caplog.text
    assert "step-000000000030-00: " in caplog.text


def test_a_changed_manifest_is_not_trusted(three: Checkpoints) -> None:
    manifest = three.folder / NEWEST / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 30', '"step": 31'))
    assert (found := three.newest()) is not None
    assert found[0].step == 2


def test_all_damaged_is_an_error_and_not_a_fresh_start(three: Checkpoints) -> None:
    for path in three.folder.glob("step-*/optimizer"):
        path.write_text("x")
    with pytest.raises(BadCheckpoint, match="none of 2 checkpoints is complete"):
        three.newest()


def test_an_incomplete_one_is_ignored_and_removed_later(three: Checkpoints) -> None:
    shutil.copytree(three.folder / NEWEST, three.folder / HALF_WRITTEN)
    assert (found := three.newest()) is not None
    assert found[0].step == 30
    three.write(TrainingPosition(0, 9, 9), saver("again"))
    assert not (three.folder / HALF_WRITTEN).exists()


def test_the_same_step_can_be_saved_again(three: Checkpoints) -> None:
    three.write(TrainingPosition(3, 0, 30), saver("again"))
    assert (found := three.newest()) is not None
    assert read(found[1]) == "again"
    assert read(three.at(30)[1]) == "again"
    # A kill while it is replaced would have left the first.
    assert read(three.folder / NEWEST) == "step 30"


def test_a_failed_save_leaves_no_checkpoint(three: Checkpoints) -> None:
    def fail(folder: Path) -> None:
        (folder / "model").write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        three.write(TrainingPosition(4, 0, 40), fail)
    with pytest.raises(BadCheckpoint, match="save wrote no file"):
        three.write(TrainingPosition(4, 0, 40), lambda _: None)
    assert (found := three.newest()) is not None
    assert found[0].step == 30


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        BadCheckpoint, match="step-000000000001-00: cannot be written: Not a directory"
    ):
        Checkpoints(tmp_path / "file").write(TrainingPosition(0, 1, 1), saver("x"))
    with pytest.raises(BadCheckpoint, match="keep 0 checkpoints"):
        Checkpoints(tmp_path, keep=0)


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").newest() is None
