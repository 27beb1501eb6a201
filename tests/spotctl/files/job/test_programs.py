"""Programs of jobs: commands and trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import MINUTE
from spotctl.files.job.programs import Checkpoint, Command, Parallel, SlowMachines, Training
from spotctl.files.job.reader import loads, restored, written
from spotctl.files.job.spec import Range
from spotctl.files.job.values import Nodes, WorkTime
from tests.spotctl.files.refused_jobs import COMMAND, TRAINING


def test_a_gang_has_as_many_machines_as_nodes_and_a_checkpoint_relative_to_the_file(
    tmp_path: Path,
) -> None:
    more = "nodes: 3\ncheckpoint: {path: ckpt, every: 15m}\n"
    found = loads(COMMAND + more, tmp_path / "job.yaml")
    assert found.program == Command(
        "python train.py", Nodes(3, 3), Checkpoint(str(tmp_path / "ckpt"), 15 * MINUTE)
    )
    assert found.resources.machines == Range(3, 3)
    changing = loads(COMMAND + more.replace("3", "2..4"), tmp_path / "job.yaml")
    assert isinstance(changing.program, Command)
    assert (changing.program.nodes, changing.resources.machines) == (Nodes(2, 4), Range(2, 4))
    assert restored(written(changing), Path("log")) == changing
    assert (written(changing)["nodes"], written(found)["nodes"]) == ("2..4", 3)
    by_itself = loads(COMMAND + more.replace("15m", "auto"), tmp_path / "job.yaml").program
    assert isinstance(by_itself, Command)
    assert by_itself.checkpoint == Checkpoint(str(tmp_path / "ckpt"), None)


def test_a_local_place_may_be_a_file_url_and_work_be_given_in_hours(tmp_path: Path) -> None:
    more = "checkpoint: {path: 'file:///my%20disk/ckpt'}\noutputs: {model: out}\nhours: 90m\n"
    found = loads(COMMAND + more, tmp_path / "job.yaml")
    assert found.program == Command("python train.py", Nodes(1, 1), Checkpoint("/my disk/ckpt"))
    assert (found.outputs, found.hours) == ({"model": str(tmp_path / "out")}, WorkTime(90 * MINUTE))


@pytest.mark.parametrize("text", [TRAINING, COMMAND])
def test_a_model_is_split_by_an_empty_mapping_as_by_auto(text: str, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text("{}")
    model = text.replace("app: mf", "app: mlp")
    found = [loads(f"{model}parallel: {way}\n", tmp_path / "job.yaml") for way in ("auto", "{}")]
    assert [job.program.parallel for job in found] == [Parallel(), Parallel()]
    assert [job.resources.reliable.machines for job in found] == [0, 0]
    assert [restored(written(job), Path("log")) for job in found] == found


@pytest.mark.parametrize("backups", [True, 2])
def test_a_run_of_an_earlier_version_keeps_backup_workers_that_no_file_may_have(
    backups: bool | int,
) -> None:
    job = loads(TRAINING, Path("job.yaml"))
    assert isinstance(job.program, Training)
    earlier = replace(
        job, program=replace(job.program, stragglers=SlowMachines(backup_workers=backups))
    )
    assert restored(written(earlier), Path("log")) == earlier
