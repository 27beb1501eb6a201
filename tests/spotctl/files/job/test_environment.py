"""Which packages a job names, and what is wrong with the file that does."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spotctl.agent.container.named_packages import NamedPackages
from spotctl.files.job import reader
from spotctl.files.job.environment import missing_here
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest

LOCK = 'version = 1\n[[package]]\nname = "mine"\nsource = { virtual = "." }\n'
PROJECT = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["numpy"]\nrequires-python = ">=3.11"\n'
CONDA = "channels: [conda-forge, defaults]\ndependencies: [python=3.12, numpy, {pip: [wandb]}]\n"


def job(folder: Path, cloud: str = "aws", **keys: object) -> JobSpec:
    content: dict[str, object] = {"name": "job", "kind": "command", "run": "true", "hours": "1h"}
    resources: dict[str, object] = {"clouds": [cloud], "types": ["c6i.large"]}
    if cloud == "local":
        resources["types"] = ["c4.xlarge"]
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump({**content, "resources": resources, **keys}))
    return reader.load(file)


def named(spec: JobSpec) -> NamedPackages:
    assert isinstance(spec.environment, NamedPackages)
    return spec.environment


def test_the_file_that_says_most_is_found(tmp_path: Path) -> None:
    assert job(tmp_path).environment is None
    for name, text, kind in (
        ("environment.yml", CONDA, "conda"),
        ("requirements.txt", "numpy\n", "requirements"),
        ("pyproject.toml", PROJECT, "pyproject"),
        ("uv.lock", LOCK, "lock"),
    ):
        (tmp_path / name).write_text(text)
        packages = named(job(tmp_path))
        assert (packages.file, packages.kind) == (name, kind)
    assert named(job(tmp_path)).python == ">=3.11"
    # A file with settings of tools only names no packages.
    (tmp_path / "uv.lock").unlink()
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert named(job(tmp_path)).file == "requirements.txt"


@pytest.mark.parametrize(
    "text",
    [
        '[tool.poetry.dependencies]\npython = "^3.9"\ntorch = "*"\n',
        '[project]\nname = "x"\nversion = "1"\ndynamic = ["dependencies"]\n',
        '[dependency-groups]\ndev = ["pytest"]\n',
    ],
)
def test_a_project_that_names_its_packages_elsewhere_does_not_hide_the_other_file(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert job(tmp_path).environment is None
    (tmp_path / "requirements.txt").write_text("numpy\n")
    assert named(job(tmp_path)).file == "requirements.txt"


def test_a_file_that_no_tool_reads_is_used_only_if_it_is_named(tmp_path: Path) -> None:
    """As the list of a conda environment under the name of pip's file."""
    (tmp_path / "requirements.txt").write_text("_libgcc_mutex=0.1=main\n")
    assert job(tmp_path).environment is None
    with pytest.raises(BadRequest, match="line 1"):
        job(tmp_path, environment="requirements.txt")


def test_addresses_are_as_good_as_names(tmp_path: Path) -> None:
    """Lines of public repositories."""
    lines = [
        "git+https://github.com/NVIDIA/apex.git@02a33875970e#egg=numpy",
        "git+https://github.com/romesco/hydra-lightning/#subdirectory=hydra-configs",
        "torch==2.1.0+cu118 ; sys_platform == 'never'",
        "--extra-index-url https://download.pytorch.org/whl/cu118",
    ]
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    spec = job(tmp_path, "local")
    assert missing_here(spec, named(spec).file) == [lines[1]]


def test_what_is_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "job"
    inner.mkdir()
    (tmp_path / "requirements.txt").write_text("numpy\n")
    with pytest.raises(BadRequest, match="is outside of"):
        job(inner, environment="../requirements.txt")
    (inner / "requirements.txt").write_text("-r ../requirements.txt\n")
    with pytest.raises(BadRequest, match=r"line 1: .*is outside of"):
        job(inner, environment="requirements.txt")


def test_an_environment_with_a_folder_of_this_computer_is_of_that_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("-e .\nno-such-package\n")
        (tmp_path / name / "code.py").write_text("")
    one, two = (named(job(tmp_path / name)).key for name in ("one", "two"))
    assert one != two


def test_a_name_of_pyenv_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    (tmp_path / ".python-version").write_text("my-env\n3.12\n")
    assert named(job(tmp_path)).python == "3.12"


def test_a_setup_or_a_container_or_none_leaves_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    assert job(tmp_path, setup="pip install -r requirements.txt").environment is None
    assert job(tmp_path, image={"container": "me/app"}).environment is None
    assert job(tmp_path, environment="none").environment is None
    both = named(job(tmp_path, setup="true", environment="requirements.txt"))
    assert both.file == "requirements.txt"


def test_an_interpreter_or_an_image_may_be_named(tmp_path: Path) -> None:
    assert named(job(tmp_path, environment="python")).kind == "python"
    assert named(job(tmp_path, environment="python3.12")).python == "3.12"
    contained = job(tmp_path, environment="docker:ghcr.io/me/app:1")
    assert (contained.environment, contained.image.container) == (None, "ghcr.io/me/app:1")


def test_another_content_is_another_environment_and_the_place_is_not(tmp_path: Path) -> None:
    file, included = tmp_path / "requirements.txt", tmp_path / "base.txt"
    included.write_text("numpy\n")
    file.write_text("-r base.txt\n# a comment\n")
    first = named(job(tmp_path))
    kept = named(job(tmp_path, checkpoint={"path": "s3://bucket/job/"}))
    assert (first.key == kept.key, first.store, kept.store) == (
        True,
        "",
        "s3://bucket/job/environments",
    )
    included.write_text("numpy>=2\n")
    assert named(job(tmp_path)).key != first.key


def test_a_folder_of_this_computer_is_kept_nowhere(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-e .\nnumpy\n")
    assert named(job(tmp_path, outputs={"model": "s3://bucket/model/"})).store == ""
    (tmp_path / "requirements.txt").write_text("numpy\n")
    stored = named(job(tmp_path, outputs={"model": "s3://bucket/model/"})).store
    assert stored == "s3://bucket/model/spotctl/environments"


def test_this_computers_python_is_used_where_it_meets_the_file(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("numpy\npyyaml>=5; python_version > '3'\nfrobnicate; python_version < '3'\n")
    assert job(tmp_path, "local").environment is None
    file.write_text("numpy>=1\nno-such-package==1.0\nnumpy<1\n")
    spec = job(tmp_path, "local")
    assert named(spec).optional
    assert missing_here(spec, "requirements.txt") == ["no-such-package==1.0", "numpy<1"]
    assert not named(job(tmp_path, "local", environment="requirements.txt")).optional


def test_what_the_log_keeps_is_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(CONDA)
    spec = job(tmp_path)
    assert named(spec).conda == {
        "channels": ["conda-forge", "main"],
        "specs": ["python=3.12", "numpy"],
        "pip": ["wandb"],
    }
    assert reader.restored(reader.written(spec), tmp_path / "log").environment == spec.environment


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "requirements.txt",
            "numpy\ntorch=2.0\n",
            "requirements.txt, line 2: 'torch=2.0' names no",
        ),
        ("requirements.txt", "-r missing.txt\n", "line 1: there is no file missing.txt"),
        ("requirements.txt", "-r requirements.txt\n", "includes itself"),
        ("uv.lock", LOCK, "there is no pyproject.toml next to it"),
        ("environment.yml", "name: x\n", "is no environment of conda"),
        (
            "environment.yml",
            "dependencies: [numpy, {npm: [x]}]\n",
            "is no package and no pip: list",
        ),
        ("environment.yml", "dependencies: [}\n", "is no environment of conda"),
        ("pyproject.toml", "[project\n", "pyproject.toml: cannot be read"),
        ("pyproject.toml", "[project]\nrequires-python = '3.x'\n", "cannot be read"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadRequest) as refused:
        job(tmp_path, environment=name)
    assert said in str(refused.value)
    assert "job.yaml:" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("requirments.txt", "there is no file requirments.txt"),
        ("docker:no such image", "environment"),
        ("notes.md", "there is no file notes.md"),
        ({"kind": "x"}, "environment"),
        (3, "environment"),
    ],
)
def test_a_wrong_name_is_refused(tmp_path: Path, value: object, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        job(tmp_path, environment=value)


def test_a_trainer_has_no_environment_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("no-such-package\n")
    (tmp_path / "job.yaml").write_text(
        "{name: job, app: mf, stop: {clocks: 5}, resources: {clouds: [local], machines: 2..4}}"
    )
    assert reader.load(tmp_path / "job.yaml").environment is None
