"""The job's folder: what is copied, and what is refused before anything is rented."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from spotctl.clouds.remote import job_folder
from spotctl.clouds.remote.job_folder import check_folder, job_archive
from spotctl.home.errors import BadRequest

FILES = (
    "train.py data/big.bin data/small.txt src/data/x.py .git/config src/__pycache__/m.pyc "
    "out/a.log notes.md"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "job"
    for name in FILES.split():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "link").symlink_to("train.py")
    (root / "run.sh").touch(0o755)
    return root


def copied(folder: Path, into: Path) -> set[str]:
    with tarfile.open(job_archive(folder, into).path) as archive:
        return {one.name for one in archive if not one.isdir()}


def test_everything_is_copied_but_git_and_compiled_files(folder: Path, tmp_path: Path) -> None:
    never = {".git/config", "src/__pycache__/m.pyc"}
    assert copied(folder, tmp_path) == {*FILES.split(), "link", "run.sh"} - never


def test_a_home_is_never_copied(folder: Path, tmp_path: Path) -> None:
    """It has the keys of machines, and its log changes while it is read."""
    before = copied(folder, tmp_path)
    for name in ("installation", "log.sqlite", "machines/ssh.key"):
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_text("")
    assert copied(folder, tmp_path) == before
    with pytest.raises(BadRequest, match="mine: is a spotctl home"):
        check_folder(folder / "mine")


@pytest.mark.parametrize(
    ("pattern", "ignored"),
    [
        ("data/", {"data/big.bin", "data/small.txt", "src/data/x.py"}),
        ("/data", {"data/big.bin", "data/small.txt"}),
        ("*.bin", {"data/big.bin"}),
        ("data/*.txt", {"data/small.txt"}),
        ("*.txt/", set()),
        ("src/*.py", set()),
        ("notes.m?", {"notes.md"}),
        ("# train.py", set()),
    ],
)
def test_patterns(folder: Path, tmp_path: Path, pattern: str, ignored: set[str]) -> None:
    before = copied(folder, tmp_path)
    (folder / ".spotctlignore").write_text(f"\n{pattern}\n")
    assert before - copied(folder, tmp_path) == ignored


def test_links_modes_and_times_arrive_and_users_do_not(folder: Path, tmp_path: Path) -> None:
    with tarfile.open(job_archive(folder, tmp_path).path) as archive:
        assert archive.getmember("link").linkname == "train.py"
        assert archive.getmember("run.sh").mode == 0o755
        assert archive.getmember("train.py").mtime == int((folder / "train.py").stat().st_mtime)
        assert {(one.uid, one.gid, one.uname, one.gname) for one in archive} == {(0, 0, "", "")}


def test_the_same_files_give_the_same_archive(folder: Path, tmp_path: Path) -> None:
    first = job_archive(folder, tmp_path / "a")
    assert job_archive(folder, tmp_path / "b").digest == first.digest
    (folder / "train.py").write_text("changed")
    assert job_archive(folder, tmp_path / "b").digest != first.digest


def test_a_folder_that_is_too_large_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_folder(folder)
    monkeypatch.setattr(job_folder, "MAX_BYTES", 1 << 20)
    with (folder / "data/big.bin").open("wb") as file:
        file.truncate(3 << 20)
    with pytest.raises(
        BadRequest, match=r"3 MiB would be copied .* the limit is 1 MiB: list in .*\.spotctlignore"
    ):
        check_folder(folder)
    (folder / ".spotctlignore").write_text("*.bin\n")
    check_folder(folder)


@pytest.mark.parametrize("line", ["!train.py", "**/x"])
def test_patterns_that_are_not_supported_are_named(folder: Path, line: str) -> None:
    (folder / ".spotctlignore").write_text(f"*.log\n{line}\n")
    with pytest.raises(BadRequest, match="line 2"):
        check_folder(folder)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="correct workdir in the job file"):
        check_folder(tmp_path / "nowhere")
