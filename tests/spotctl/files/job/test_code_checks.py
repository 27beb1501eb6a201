"""How the app of a job file is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.code_checks import script_problem
from spotctl.files.job.reader import load, loads
from spotctl.home.errors import BadRequest
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.refused_jobs import TRAINING


class TestApps:
    """An app is looked for without running a line of it."""

    @staticmethod
    def loaded(folder: Path, app: str, more: str = "") -> str:
        try:
            loads(TRAINING.replace("app: mf", f"app: {app}") + more, folder / "job.yaml")
        except BadRequest as refused:
            return str(refused).partition(": app: ")[2]
        return ""

    def test_a_module_of_the_workdir_is_read_but_not_run(self, tmp_path: Path) -> None:
        (tmp_path / "apps").mkdir()
        code = (
            "raise SystemExit('was run')\nclass Recsys: ...\nif True:\n    from x import Other as "
            "Named\nmade = 1\n"
        )
        (tmp_path / "apps" / "recsys.py").write_text(code)
        for name in ("Recsys", "Named", "made"):
            assert self.loaded(tmp_path, f"apps.recsys:{name}") == ""
        where = tmp_path / "apps" / "recsys.py"
        assert self.loaded(tmp_path, "apps.recsys:Recys") == (
            f"{where} defines no Recys (did you mean Recsys?); expected a class or function of "
            "that file"
        )

    def test_a_package_may_define_it_and_a_star_may_bring_anything(self, tmp_path: Path) -> None:
        (tmp_path / "apps").mkdir()
        (tmp_path / "apps" / "__init__.py").write_text("from .more import *\n")
        assert self.loaded(tmp_path, "apps:Anything") == ""

    def test_code_that_is_not_python_is_named_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "recsys.py").write_text("\nclass Recsys(:\n")
        assert self.loaded(tmp_path, "recsys:Recsys").startswith(
            f"{tmp_path / 'recsys.py'}, line 2 is not Python: "
        )

    def test_what_is_installed_or_will_be_by_setup_is_left_to_the_run(self, tmp_path: Path) -> None:
        assert self.loaded(tmp_path, "numpy.nowhere:Thing") == ""
        assert (
            self.loaded(tmp_path, "not_yet_there:Thing", "setup: pip install not-yet-there\n") == ""
        )
        assert self.loaded(tmp_path, "not_yet_there:Thing").startswith(
            "'not_yet_there:Thing': there is no module"
        )

    def test_it_is_looked_for_in_workdir(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "trainer.py").write_text("class T: ...\n")
        assert self.loaded(tmp_path, "trainer.py", "workdir: src\n") == ""
        assert self.loaded(tmp_path, "trainer:T", "workdir: src\n") == ""
        assert self.loaded(tmp_path, "trainer.py") != ""


JOB = (
    "name: a\nkind: command\nrun: {run}\nresources: {{clouds: [local], types: "
    "[c4.2xlarge]}}\n{more}"
)
MISSING = (
    "python train.py",
    "python3 -u train.py --fast",
    "./train.sh",
    "exec python3.12 a/b.py",
    "bash go.sh 1",
)
NO_SCRIPT = (
    "python -m train",
    "python -c 'print(1)'",
    "train.py",
    "/opt/train.sh",
    "cd src && python train.py",
    "echo",
)


def job(folder: Path, run: str, more: str = "") -> Path:
    path = folder / "job.yaml"
    path.write_text(JOB.format(run=run, more=more))
    return path


@pytest.mark.parametrize("run", MISSING)
def test_a_script_that_is_not_there_is_refused(tmp_path: Path, run: str) -> None:
    path = job(tmp_path, run)
    with pytest.raises(
        BadRequest, match=rf"^{path}:3: run: there is no file .* in {tmp_path}; correct"
    ):
        load(path, to_launch=True)
    assert load(path), "a plan needs no script"
    assert load(job(tmp_path, run, "setup: git clone x\n"), to_launch=True), "a setup may make it"


@pytest.mark.parametrize("run", NO_SCRIPT)
def test_other_commands_are_not_judged(tmp_path: Path, run: str) -> None:
    assert script_problem(run, tmp_path) is None


def test_a_script_that_is_there_is_launched(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert load(job(tmp_path, "python train.py"), to_launch=True)


def test_launch_says_so_and_creates_nothing(tmp_path: Path) -> None:
    ended = spotctl(
        "--home", tmp_path / "home", "launch", job(tmp_path, "python train.py"), "--yes"
    )
    assert ended.code == 2
    assert ended.error.endswith(
        f"job.yaml:3: run: there is no file train.py in {tmp_path}; correct the name, or write "
        "workdir\n"
    )
    assert not (tmp_path / "home").exists()
