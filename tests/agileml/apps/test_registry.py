"""Finding trainers by name, module or file, and the errors when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agileml.apps import BUILT_IN
from agileml.apps.mf import MatrixFactorization
from agileml.apps.registry import TrainerSource, parse_arguments
from agileml.errors import (
    AgileMLError,
    BadArgument,
    BadTrainer,
    PeerRefused,
    TrainerFailed,
    UnknownApp,
)
from agileml.params.commit import Declarations

METHODS = """
    def init(self, rng): return {"w": 0}
    def shards(self): return [range(3)]
    def step(self, shard, lo, hi, params, clock, rng): pass
    def loss(self, params, sample): return 0.0
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path / "job.py"


def loaded(path: Path, text: str, **arguments: object) -> object:
    path.write_text(text)
    return TrainerSource(str(path), arguments).load()


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_apps_load_under_their_names(name: str) -> None:
    assert Declarations.of(TrainerSource(name).load()).name == name


def test_arguments_may_be_text_or_numbers() -> None:
    app = TrainerSource("mf", {"rank": "3", "rate": "0.5", "users": 30.0, "items": 20}).load()
    assert app == MatrixFactorization(rank=3, rate=0.5, users=30, items=20)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            {"rnk": 3},
            "mf has no argument 'rnk'; it takes rank \\(columns of the factors\\), users \\(rows "
            "of ",
        ),
        ({"rank": 0}, "mf: rank is 0; it must be a whole number of at least 1"),
        ({"rank": 2.5}, "mf: rank is 2.5; it must be a whole number of at least 1"),
        ({"rank": "x"}, "mf: rank is 'x'; it must be a whole number"),
        ({"rank": True}, "mf: rank is True"),
        ({"rank": None}, "mf: rank is None"),
        ({"rank": float("inf")}, "mf: rank is inf"),
        ({"rate": 0}, "mf: rate is 0; it must be a number above 0"),
        ({"rate": "nan"}, "mf: rate is 'nan'; it must be a number above 0"),
        ({"noise": -1}, "mf: noise is -1; it must be a number of at least 0"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(BadArgument, match=problem):
        TrainerSource("mf", arguments).load()


def test_arguments_are_parsed() -> None:
    assert parse_arguments(["rank=3", "rate=1e-2", "path=a=b", "empty="]) == {
        "rank": 3, "rate": 0.01, "path": "a=b", "empty": "",
    }  # fmt: skip
    for texts, problem in (
        (["rank"], "invalid argument 'rank'"),
        (["a=1", "a=2"], "argument a is given more than once"),
    ):
        with pytest.raises(BadArgument, match=problem):
            parse_arguments(texts)


def test_a_file_with_one_trainer_class(job: Path) -> None:
    trainer = loaded(job, f"class Helper: pass\nclass Mine:{METHODS}")
    assert type(trainer).__name__ == "Mine"


def test_a_file_with_a_function_that_takes_arguments(job: Path) -> None:
    function = "def trainer(size, kind='x'):\n  made = B()\n  made.size = size\n  return made"
    trainer = loaded(job, f"class A:{METHODS}\nclass B:{METHODS}\n{function}", size=4)
    assert type(trainer).__name__ == "B"
    assert vars(trainer) == {"size": 4}


def test_a_file_can_import_from_its_folder(job: Path) -> None:
    (job.parent / "beside_the_job.py").write_text(f"class Base:{METHODS}")
    trainer = loaded(
        job,
        "import dataclasses\nfrom beside_the_job import Base\n@dataclasses.dataclass\nclass "
        "Mine(Base):\n  n: int = 2",
    )
    assert vars(trainer) == {"n": 2}


def test_a_class_of_a_module() -> None:
    assert (
        type(TrainerSource("tests.agileml.toys:Decades", {"chunk": 3}).load()).__name__ == "Decades"
    )


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        (
            "",
            BadTrainer,
            r"job.py defines neither a function trainer\(\) nor a class with init\(\), shards\(\), step\(\), loss\(\)$",
        ),
        (
            "class A:\n  def init(self, rng): pass\n  loss = init",
            BadTrainer,
            r"; A lacks shards\(\), step\(\)$",
        ),
        (
            f"class A:{METHODS}\nclass B:{METHODS}",
            BadTrainer,
            r"job.py defines several trainers \(A, B\); add a function trainer\(\)",
        ),
        (
            f"class A:{METHODS}".replace("clock, ", ""),
            BadTrainer,
            r"step must be step\(self, shard, lo, hi, params, clock, rng\)",
        ),
        (
            "def trainer(): return 3",
            BadTrainer,
            r"job.py: int lacks init\(\), shards\(\), step\(\), loss\(\); a trainer has",
        ),
        ("def trainer(): 1 / 0", TrainerFailed, "job.py: ZeroDivisionError: division by zero"),
        ("\ndef trainer(:", TrainerFailed, "job.py, line 2: invalid syntax"),
        (
            "import no_such_module",
            TrainerFailed,
            "job.py: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            "def trainer(size): pass",
            BadArgument,
            "job.py: missing a required argument: 'size'; it takes size",
        ),
    ],
)
def test_an_incomplete_file_is_refused(
    job: Path, text: str, error: type[AgileMLError], problem: str
) -> None:
    with pytest.raises(error, match=problem) as caught:
        loaded(job, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "error", "problem"),
    [
        (
            "svm",
            UnknownApp,
            r"unknown app 'svm'; choose one of mf, mlr, lda, or pass module:Class, FILE\.py or FILE\.py:NAME",
        ),
        ("gone.py", UnknownApp, "gone.py: no such file"),
        ("gone_module:A", UnknownApp, "no module 'gone_module' on the import path"),
        ("tests.gone:A", UnknownApp, "no module 'tests.gone' on the import path"),
        (
            "tests.agileml.toys:Gone",
            UnknownApp,
            "tests.agileml.toys defines no Gone; write module:Class",
        ),
        ("tests.agileml.toys:", UnknownApp, "'tests.agileml.toys:' is not a class; write"),
        (":A", UnknownApp, "write module:Class"),
        ("..toys:A", UnknownApp, "write module:Class"),
    ],
)
def test_an_unknown_trainer_is_refused(
    target: str, error: type[AgileMLError], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        TrainerSource(target).load()


def test_unexpected_arguments_of_user_code_are_refused(job: Path) -> None:
    with pytest.raises(BadArgument, match="got an unexpected keyword argument 'b'; it takes a"):
        loaded(job, "def trainer(a=1): pass", b=2)


def test_the_code_version_depends_on_text_and_arguments(job: Path, tmp_path: Path) -> None:
    job.write_text("a = 1")
    first = TrainerSource(str(job), {"n": 1}).code()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "job.py").write_text("a = 1")
    assert TrainerSource(str(elsewhere / "job.py"), {"n": 1}).code() == first
    assert TrainerSource(str(job), {"n": 2}).code() != first
    job.write_text("a = 2")
    assert TrainerSource(str(job), {"n": 1}).code() != first
    assert TrainerSource("mf").code() != TrainerSource("mlr").code()


FILES = {
    "job.py": "import numpy, helpers\nfrom parts import steps\nfrom parts.more import rates as r",
    "helpers.py": "import job",
    "parts/__init__.py": "",
    "parts/steps.py": "def f():\n    from . import losses\n    from .more import rates",
    "parts/losses.py": "",
    "parts/more/__init__.py": "",
    "parts/more/rates.py": "from ..deep import below",
    "parts/deep/below.py": "1 +",
}
"""The files of a job; one package has no `__init__`, and one file is not valid Python."""


def written(folder: Path) -> Path:
    for name, text in {**FILES, "parts/unused.py": "", "other.py": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("target", ["job.py", "job:A"])
def test_imported_files_belong_to_the_code_version(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "one")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    first = TrainerSource(target).code()
    for name, text in FILES.items():
        (folder / name).write_text(text + " #")
        assert TrainerSource(target).code() != first, name
        (folder / name).write_text(text)
    for name in ("parts/unused.py", "other.py"):
        (folder / name).write_text("changed")
    assert TrainerSource(target).code() == first
    elsewhere = written(tmp_path / "two")
    monkeypatch.chdir(elsewhere)
    monkeypatch.syspath_prepend(str(elsewhere))
    assert TrainerSource(target).code() == first
    (elsewhere / "parts" / "steps.py").rename(elsewhere / "parts" / "strides.py")
    assert TrainerSource(target).code() != first


def test_a_missing_file_has_a_code_version() -> None:
    assert TrainerSource("gone.py").code() == TrainerSource("gone.py").code()
    assert TrainerSource("gone.module:A").code() != TrainerSource("gone.py").code()


# -- the code for a node that has none of it -------------------------------------------------------


def test_a_trainers_files_can_be_loaded_elsewhere_as_the_same_code(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "parts_of_it").mkdir(parents=True)
    (here / "parts_of_it" / "__init__.py").write_text("from . import size\n")
    (here / "parts_of_it" / "size.py").write_text("SIZE = 7\n")
    (here / "unrelated.py").write_text("raise SystemExit\n")
    (here / "mine.py").write_text("import json\nimport parts_of_it\n")
    source = TrainerSource(str(here / "mine.py"), {"a": 1})
    files = source.files()
    assert sorted(files) == ["mine.py", "parts_of_it/__init__.py", "parts_of_it/size.py"]
    moved = source.unpack(files, there)
    assert moved.target == str(there / "mine.py")
    assert (moved.code(), moved.arguments) == (source.code(), source.arguments)


@pytest.mark.parametrize("target", ["mf", "agileml.training:restored", "json:loads", "absent:x"])
def test_installed_code_is_not_sent(target: str) -> None:
    source = TrainerSource(target)
    assert source.files() == {}
    assert source.unpack({}, Path("/nowhere")) is source


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/../../x.py"])
def test_files_outside_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(PeerRefused, match="outside the trainer's folder"):
        TrainerSource("mine.py").unpack({name: b""}, tmp_path)
