"""The job file of a script, and what its machines install."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import HOUR
from spotctl.files.job.reader import loads
from spotctl.files.script.job_text import ScriptAnswers, job_text
from spotctl.files.script.places import Places, ScriptPlace
from spotctl.files.script.reading import read_script
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.script.test_reading import job, script

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]


def test_what_machines_install(folder: Path) -> None:
    text = "import cv2\nimport yaml\nimport os\nfrom helpers import x\nimport torch\n"
    (folder / "helpers.py").touch()
    assert script(text).install == "opencv-python-headless pyyaml torch"
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert script(text).install == "."
    (folder / "requirements.txt").write_text("torch\n")
    assert script(text).install == "-r requirements.txt"


def test_scripts_with_many_arguments_are_read_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each comparison is looked at once, and not once for each argument: the training script of
    timm has 173 of them, and took minutes.
    """
    asked = list[object]()
    of = Places.of

    def counted(places: Places, node: ast.expr | None, steps: int = 0) -> ScriptPlace:
        asked.append(node)
        return of(places, node, steps)

    monkeypatch.setattr(Places, "of", counted)

    def work(arguments: int) -> int:
        asked.clear()
        lines = ["import argparse", "p = argparse.ArgumentParser()"]
        lines += [f"p.add_argument('--resume{number}', default='')" for number in range(arguments)]
        lines += ["args = p.parse_args()"]
        lines += [f"chosen = args.resume{number} == 'auto'" for number in range(arguments)]
        resuming = replace(script("\n".join(lines) + "\n"), seen=True)
        job_text(resuming, ScriptAnswers("local", HOUR, "", assumed=False))
        return len(asked)

    assert 80 <= work(80) < 2.5 * work(40)


def test_data_outside_of_the_folder_is_brought_to_the_machines(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    Path("inside").mkdir()
    lines = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', "
        "default='../corpus')\n"
    )
    Path("train.py").write_text(f"{lines}p.add_argument('--other', default='inside')\n")
    spotctl("init", "train.py")
    spec = job()
    assert spec.data == {"data": str(tmp_path / "corpus")}
    assert spec.program.run == 'python train.py --data "$DATA_DATA"'  # type: ignore[union-attr]


def test_data_of_a_job_on_a_cloud_is_stored_by_the_launch_if_the_job_has_a_bucket(
    tmp_path: Path,
) -> None:
    (tmp_path / "corpus").mkdir()
    lines = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', "
        "default='../corpus')\n"
    )
    answers = ScriptAnswers("aws", HOUR, "my-bucket", assumed=False)
    for more, data in (
        ("", "s3://my-bucket/data/"),
        (
            "import torch\nfor epoch in range(3):\n    net(1).backward()\ntorch.save(net, "
            "'net.pt')\n",
            str(tmp_path / "corpus"),
        ),
    ):
        Path("train.py").write_text(lines + more)
        text, _ = job_text(read_script(Path("train.py"), Path.cwd()), answers)
        assert loads(text, Path("job.yaml")).data == {"data": data}


def test_odd_paths_and_defaults_are_written_as_yaml_reads_them(tmp_path: Path) -> None:
    data = tmp_path / "a, b: {c} #d 'e'"
    data.mkdir()
    lines = "import argparse\np = argparse.ArgumentParser()\n"
    lines += f"p.add_argument('--data', default={str(data)!r})\n"
    lines += "p.add_argument('--prompt', default='one: #\\n- two\\x07\\n' + 'long')\n"
    lines += "p.add_argument('--end', default='\\n: x\\x07')\n"
    Path("odd name.py").write_text(lines)
    assert spotctl("init", "odd name.py").code == 0
    spec = job()
    assert spec.data == {"data": str(data)}
    assert spec.program.run == "python 'odd name.py' --data \"$DATA_DATA\""  # type: ignore[union-attr]
