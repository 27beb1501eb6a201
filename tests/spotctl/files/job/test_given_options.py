"""Keys of a job file that the command line gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.given_options import GivenOptions
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.reader import load_all
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest

COMMAND = """\
name: search
run: python train.py --lr $lr
env: {SEED: 007, lr: 1}
checkpoint: {path: s3://bucket/search}
outputs: {model: out}
resources: {clouds: [aws], types: [c4.large]}
"""
TRAINING = """\
name: fit
app: mf
stop: {clocks: 10}
args: {rank: 4}
resources: {clouds: [local], machines: 1..4}
"""


def jobs(tmp_path: Path, text: str, **given: str | tuple[str, ...]) -> list[JobSpec]:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return [spec for spec, _ in load_all([path], GivenOptions(**given))]  # type: ignore[arg-type]


def test_given_keys_replace_those_of_the_file(tmp_path: Path) -> None:
    (spec,) = jobs(tmp_path, COMMAND, name="other", budget="2.50 USD", env=("lr=0x10", "NEW=a=b"))
    assert (spec.name, spec.budget) == ("other", 2_500_000_000)
    assert spec.env == {"SEED": "007", "lr": "0x10", "NEW": "a=b"}


def test_each_value_of_a_sweep_is_a_job_with_places_of_its_own(tmp_path: Path) -> None:
    found = jobs(tmp_path, COMMAND, sweep=("lr=1e-3,1e-4",))
    assert [spec.name for spec in found] == ["search-lr-1e-3", "search-lr-1e-4"]
    assert [spec.env["lr"] for spec in found] == ["1e-3", "1e-4"]
    for spec in found:
        assert isinstance(spec.program, Command)
        assert spec.program.checkpoint is not None
        assert spec.program.checkpoint.path == f"s3://bucket/search/{spec.name}/"
        assert spec.outputs == {"model": str(tmp_path / "out" / spec.name)}


def test_sweeps_are_combined_and_keep_their_names_apart(tmp_path: Path) -> None:
    found = jobs(tmp_path, COMMAND, sweep=("lr=1,2", "seed=a,A"))
    assert [(spec.env["lr"], spec.env["seed"]) for spec in found] == [
        ("1", "a"),
        ("1", "A"),
        ("2", "a"),
        ("2", "A"),
    ]
    assert len({spec.name for spec in found}) == 4


def test_a_training_gets_the_values_as_arguments(tmp_path: Path) -> None:
    found = jobs(tmp_path, TRAINING, sweep=("rank=8,16",))
    programs = [spec.program for spec in found]
    assert all(isinstance(program, Training) for program in programs)
    assert [program.args["rank"] for program in programs if isinstance(program, Training)] == [
        8,
        16,
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "Bad Name"}, "--name: name: 'Bad Name' does not fit"),
        ({"budget": "much"}, "--budget much: budget: 'much USD' is not an amount"),
        ({"env": ("9=1",)}, "--env 9: env.9: '9' does not fit"),
        ({"env": ("LR",)}, "--env LR: is not KEY=VALUE"),
        ({"sweep": ("lr",)}, "--sweep lr: is not KEY=VALUE; write it as --sweep lr=1e-3,1e-4"),
        ({"sweep": (f"lr={','.join('1' * 101)}",)}, "--sweep: makes 101 jobs; 100 are the most"),
    ],
)
def test_mistakes_name_the_option(
    given: dict[str, str | tuple[str, ...]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadRequest) as refused:
        jobs(tmp_path, COMMAND, **given)
    assert str(refused.value).startswith(said)


def test_a_name_is_of_one_file(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="names one job, and there are 2 files"):
        load_all([tmp_path / "a.yaml", tmp_path / "b.yaml"], GivenOptions("one"))


def test_a_script_and_a_task_of_another_tool_name_init(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"train.py: is a script; spotctl init .*train.py train"):
        load_all([tmp_path / "train.py"], GivenOptions())
    with pytest.raises(BadRequest, match=r"is a task of another tool; spotctl init "):
        jobs(tmp_path, "resources: {infra: aws, accelerators: T4:1}\nrun: python train.py\n")
