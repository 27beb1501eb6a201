"""Outputs that overlap with other files are refused before anything is rented; those that have a
place are not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import from_fields, load
from spotctl.home.errors import BadRequest
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import COMMAND

REFUSED = {
    "home itself": ("{res: ../home}", "res: {0}/home is also spotctl's home"),
    "in the home": (
        "{res: ../home/results}",
        "res: {0}/home/results is in spotctl's home, {0}/home",
    ),
    "around the home": ("{res: ..}", "res: {0} contains workdir, {0}/job"),
    "a link to the home": ("{res: link-to-home}", "res: {0}/home is also spotctl's home"),
    "below a link to the home": (
        "{res: link-to-home/a/../b}",
        "res: {0}/home/b is in spotctl's home, {0}/home",
    ),
    "the work folder": ("{res: .}", "res: {0}/job is also workdir"),
    "the work folder by a link": ("{res: ../link-to-job}", "res: {0}/job is also workdir"),
    "the root": ("{res: /}", "res: / contains workdir, {0}/job"),
    "data": ("{res: points}", "res: {0}/job/points is also data.points"),
    "in data": ("{res: points/new}", "res: {0}/job/points/new is in data.points, {0}/job/points"),
    "the checkpoint": ("{res: file:///0/job/ckpt}", "res: {0}/job/ckpt is also checkpoint.path"),
    "around the checkpoint": (
        "{res: kept}",
        "res: {0}/job/kept contains checkpoint.path, {0}/job/kept/ckpt",
    ),
    "each other": ("{a: o, b: o}", "b: {0}/job/o is also outputs.a"),
    "each other in other words": ("{a: ./o/, b: ../job/x/../o}", "b: {0}/job/o is also outputs.a"),
    "in each other": ("{a: o, c: other, b: o/p}", "b: {0}/job/o/p is in outputs.a, {0}/job/o"),
    "around each other": ("{a: o/p, b: o}", "b: {0}/job/o contains outputs.a, {0}/job/o/p"),
    "one place in a bucket": (
        "{a: 's3://b/o', b: 's3://b//o/'}",
        "b: s3://b//o/ is also outputs.a, s3://b/o",
    ),
    "the bucket around it": (
        "{a: 's3://b/o', b: 's3://b'}",
        "b: s3://b contains outputs.a, s3://b/o",
    ),
}
ACCEPTED = (
    "{res: results, model: models}",
    "{a: o, b: o2, c: o-3/o}",
    "{res: ../results}",
    "{a: 's3://b/o', b: 's3://b/o2', c: 's3://b2/o', d: 'gs://b/o'}",
    "{res: ../home-of-others}",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a home, a job's folder with data, and links to both."""
    tmp_path = tmp_path.resolve()
    (tmp_path / "home").mkdir()
    (tmp_path / "job" / "points").mkdir(parents=True)
    (tmp_path / "job" / "link-to-home").symlink_to(tmp_path / "home")
    (tmp_path / "link-to-job").symlink_to("job")
    return tmp_path


def job(folder: Path, outputs: str) -> Path:
    checkpoint = "kept/ckpt" if "kept" in outputs else "ckpt"
    path = folder / "job" / "job.yaml"
    more = f"data: {{points: points}}\ncheckpoint: {{path: {checkpoint}}}\noutputs: {outputs}\n"
    path.write_text(COMMAND.format(run="'true'") + more.replace("/0/", f"{folder}/"))
    return path


@pytest.mark.parametrize(("outputs", "said"), REFUSED.values(), ids=list(REFUSED))
def test_an_output_in_place_of_other_files_is_refused(
    folder: Path, outputs: str, said: str
) -> None:
    path = job(folder, outputs)
    with pytest.raises(BadRequest) as refused:
        load(path, home=folder / "home")
    line = (
        path.read_text().splitlines().index(f"outputs: {outputs}".replace("/0/", f"{folder}/")) + 1
    )
    place = f"{path}:{line}: outputs.{said.format(folder)}"
    assert str(refused.value).startswith(place)
    assert str(refused.value).removeprefix(place).startswith("; write a folder of its own")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("outputs", ACCEPTED)
def test_an_output_of_its_own_is_accepted(folder: Path, outputs: str) -> None:
    assert load(job(folder, outputs), home=folder / "home").outputs


def test_a_home_that_is_reached_through_a_link_is_the_same_home(folder: Path) -> None:
    with pytest.raises(BadRequest, match="is also spotctl's home"):
        load(job(folder, "{res: ../home}"), home=folder / "job" / "link-to-home")


def test_fields_are_checked_as_files_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "job")
    fields = {
        "name": "x",
        "run": "true",
        "resources": {"clouds": ["local"]},
        "outputs": {"a": "o", "b": "./o"},
    }
    with pytest.raises(BadRequest, match=r"outputs\.b: .*/job/o is also outputs\.a"):
        from_fields(fields)


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_both_commands_refuse_it_before_anything_is_rented(
    folder: Path, command: str, approved: Approved
) -> None:
    for outputs in ("{res: ../home}", "{a: o, b: o}"):
        refused = spotctl("--home", folder / "home", command, job(folder, outputs))
        assert refused.code == 2
        approved(refused)
    assert not (folder / "home" / "log.sqlite").exists()
