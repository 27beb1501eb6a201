"""Environments, built by a real uv from packages that the tests make."""

from __future__ import annotations

import ensurepip
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.agent.container.named_packages import NamedPackages
from spotctl.agent.data.transfer import is_temporary
from spotctl.agent.environment import built
from spotctl.agent.environment.built import BuiltEnvironment
from spotctl.agent.errors import CannotBuild
from tests.spotctl.agent.environment.channels import channel
from tests.spotctl.agent.environment.wheels import LOCK, PROJECT, wheel


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    wheel(folder, "spotone", needs="spottwo")
    wheel(folder, "spottwo", "2.0")
    return folder


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "requirements.txt").write_text("spotone\n")
    return folder


def given(index: Path) -> dict[str, str]:
    """A machine's variables: what pip has of an index, uv reads, too."""
    return {**os.environ, "PIP_FIND_LINKS": str(index), "UV_OFFLINE": "1", "PYTHONPATH": "/none"}


def named(
    folder: Path, kind: str = "requirements", file: str = "requirements.txt"
) -> NamedPackages:
    return NamedPackages(kind, str(hash((folder / file).read_bytes())), file)


def output(variables: Mapping[str, str], *words: str) -> str:
    done = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_programs_find_what_the_file_names_and_nothing_else(
    tmp_path: Path, index: Path, job: Path
) -> None:
    environment, said = BuiltEnvironment(named(job), tmp_path / "cache", job), list[str]()
    assert environment.variables(os.environ) == {}
    environment.prepare(given(index), said.append)
    variables = environment.variables(os.environ)
    assert output(variables, "spotone") == "1.0"
    assert output(variables, "python", "-c", "import spottwo; print(spottwo.version)") == "2.0"
    assert output(variables, "python", "-c", "import sys; print(sys.prefix)").startswith(
        str(tmp_path / "cache")
    )
    # Our own modules are there, and what else is installed with them is not.
    assert output(variables, "python", "-c", "import spotctl.integrations, agileml") == ""
    with pytest.raises(subprocess.CalledProcessError):
        output(variables, "python", "-c", "import numpy")
    # uv's own words, as it goes on.
    assert [line.split(" in ")[0] for line in said] == [
        "environment: builds requirements.txt ...",
        "environment: Resolved 2 packages",
        "environment: Installed 2 packages",
        "environment: built",
    ]
    # Once for a content.
    environment.prepare({}, said.append)
    assert len(said) == 4


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("pyproject", {"pyproject.toml": PROJECT}),
        ("lock", {"uv.lock": LOCK, "pyproject.toml": PROJECT}),
    ],
)
def test_a_project_has_its_dependencies_and_its_own_modules(
    tmp_path: Path, index: Path, job: Path, kind: str, files: Mapping[str, str]
) -> None:
    for name, text in files.items():
        (job / name).write_text(text.format(index=index) if name == "uv.lock" else text)
    (job / "src").mkdir()
    (job / "src" / "mine.py").write_text("import spotone\n")
    environment = BuiltEnvironment(named(job, kind, next(iter(files))), tmp_path / "cache", job)
    environment.prepare(given(index), print)
    variables = environment.variables({"PATH": os.environ["PATH"]})
    assert output(variables, "python", "-c", "import mine; print(mine.spotone.version)") == "1.0"
    # Nothing was written to the job's folder, which may be a person's.
    assert {path.name for path in job.iterdir()} == {*files, "src", "requirements.txt"}


def test_the_next_machine_gets_what_the_first_has_kept_and_old_ones_are_dropped(
    tmp_path: Path, index: Path, job: Path
) -> None:
    kept, cache = tmp_path / "bucket", tmp_path / "cache"
    packages = replace(named(job), store=str(kept))
    first = BuiltEnvironment(packages, cache, job)
    first.prepare(given(index), print)
    first.keep(print)
    # A machine has the same paths as the others, and no index here.
    cache.rename(tmp_path / "gone")
    second, said = BuiltEnvironment(packages, cache, job), list[str]()
    second.prepare({"PATH": os.environ["PATH"], "UV_OFFLINE": "1"}, said.append)
    assert said[0].startswith(f"environment: from {kept} in ")
    assert output(second.variables(os.environ), "spotone") == "1.0"

    (job / "requirements.txt").write_text("spottwo\n")
    other = BuiltEnvironment(replace(named(job), store=str(kept)), cache, job)
    other.prepare(given(index), print)
    other.keep(print)
    assert len([path for path in kept.rglob("*") if path.is_file()]) == 1


def test_what_was_kept_and_is_damaged_is_built_anew(tmp_path: Path, index: Path, job: Path) -> None:
    kept, cache = tmp_path / "bucket", tmp_path / "cache"
    packages = replace(named(job), store=str(kept))
    first = BuiltEnvironment(packages, cache, job)
    first.prepare(given(index), print)
    first.keep(print)
    (archive,) = (path for path in kept.rglob("*") if path.is_file())
    archive.write_bytes(archive.read_bytes()[:-1000])
    cache.rename(tmp_path / "gone")

    second, said = BuiltEnvironment(packages, cache, job), list[str]()
    second.prepare(given(index), said.append)
    assert said[0].startswith(f"environment: none can be read at {kept}: ")
    assert output(second.variables(os.environ), "spotone") == "1.0"


def test_a_build_that_was_killed_counts_for_nothing(
    tmp_path: Path, index: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    environment = BuiltEnvironment(named(job), tmp_path / "cache", job)
    with monkeypatch.context() as patch:
        patch.setitem(built.KINDS, "requirements", kill)
        with pytest.raises(Killed):
            environment.prepare(given(index), print)
    assert environment.variables(os.environ) == {}
    environment.prepare(given(index), print)
    assert output(environment.variables(os.environ), "spotone") == "1.0"


def test_a_failure_says_what_uv_says_unless_the_environment_may_be_left_out(
    tmp_path: Path, index: Path, job: Path
) -> None:
    (job / "requirements.txt").write_text("spotone\nmissing-package\n")
    environment = BuiltEnvironment(named(job), tmp_path / "cache", job)
    with pytest.raises(CannotBuild, match=r"requirements\.txt: .*missing-package") as refused:
        environment.prepare(given(index), print)
    assert "\n" not in str(refused.value)
    assert "Using Python" not in str(refused.value)
    assert not is_temporary(refused.value)

    said = list[str]()
    left = BuiltEnvironment(replace(named(job), optional=True), tmp_path / "cache", job)
    left.prepare(given(index), said.append)
    assert said[-1].startswith("environment: left out: ")
    assert left.variables(os.environ) == {}
    # The machines of a run do not try it again; the next launch does.
    count = len(said)
    left.prepare(given(index), said.append)
    assert len(said) == count
    left.prepare(given(index), said.append, again=True)
    assert len(said) > count


def test_an_interpreter_of_its_own_has_uv(tmp_path: Path, job: Path, index: Path) -> None:
    # uv gives the interpreter these packages, too; Python has a pip to install from.
    (pip,) = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    shutil.copy(pip, index)
    for name in ("setuptools", "wheel"):
        wheel(index, name)
    environment = BuiltEnvironment(NamedPackages("python", ""), tmp_path / "cache", job)
    environment.prepare(given(index), print)
    variables = {**environment.variables(os.environ), "UV_OFFLINE": "1"}
    output(variables, "uv", "pip", "install", "--quiet", f"--find-links={index}", "spotone")
    assert output(variables, "spotone") == "1.0"
    assert output(variables, "pip", "--version").startswith("pip ")


def test_conda_packages_come_from_a_channel(tmp_path: Path, job: Path) -> None:
    pytest.importorskip("rattler", reason="py-rattler installs conda's packages")
    folder = tmp_path / "channel"
    channel(folder, "third", "3.0")
    packages = NamedPackages(
        "conda",
        "1",
        "environment.yml",
        conda={"channels": [folder.as_uri()], "specs": ["third >=2"]},
    )
    environment = BuiltEnvironment(packages, tmp_path / "cache", job)
    environment.prepare({**os.environ, "RATTLER_CACHE_DIR": str(tmp_path / "rattler")}, print)
    variables = environment.variables(os.environ)
    assert output(variables, "third") == "3.0"
    assert variables["CONDA_PREFIX"] in output(
        variables, sys.executable, "-c", "import os; print(os.environ['CONDA_PREFIX'])"
    )
