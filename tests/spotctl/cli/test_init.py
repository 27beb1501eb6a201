"""The starter job file that `init` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from spotctl.files.job.programs import Command
from spotctl.files.job.reader import load, loads, schema
from spotctl.files.job.spec import Range
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.job.test_forms_schema import ROOT


class TestInit:
    """`spotctl init`."""

    def test_it_writes_a_file_that_is_right_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        ended = spotctl("init")
        assert (ended.code, ended.out) == (0, "")
        assert (
            ended.err
            == "wrote job.yaml; next: spotctl plan job.yaml, then spotctl launch job.yaml\n"
        )
        assert load(tmp_path / "job.yaml").is_local
        # The editor's schema is a file of this computer.
        first = (tmp_path / "job.yaml").read_text().partition("\n")[0]
        named = Path(unquote(urlsplit(first.partition("$schema=")[2]).path))
        assert json.loads(named.read_text()) == schema()
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["job.yaml"]

    def test_its_comments_are_right_too(self, tmp_path: Path) -> None:
        """Each commented key may be uncommented; those of a command take the place of a
        trainer's."""
        text = (ROOT / "spotctl" / "files" / "job" / "starter_job.yaml").read_text()
        told = re.sub(r"^( *)# (\w+: (?!job for).*)$", r"\1\2", text, flags=re.MULTILINE)
        told = re.sub(r"^  types: \[.*\n", "", told, flags=re.MULTILINE)
        told = told.replace("clouds: [local]", "clouds: [aws, gcp]").partition("\nlocal:")[0] + "\n"
        trainer = re.sub(r"^(run|nodes|checkpoint):.*\n", "", told, flags=re.MULTILINE)
        command = re.sub(r"^(app|args|stop):.*\n|^  machines:.*\n", "", told, flags=re.MULTILINE)
        command = command.replace("kind: agileml", "kind: command")
        assert loads(trainer, tmp_path / "job.yaml").setup == "pip install -r requirements.txt"
        assert loads(command, tmp_path / "job.yaml").resources.machines == Range(2, 2)

    def test_it_never_writes_over_a_file(self, tmp_path: Path, approved: Approved) -> None:
        (tmp_path / "job.yaml").write_text("mine")
        ended = spotctl("init", tmp_path / "job.yaml")
        approved(ended)
        assert (tmp_path / "job.yaml").read_text() == "mine"
        assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["job.yaml"]

    @pytest.mark.parametrize("where", ["none/job.yaml", "."])
    def test_a_place_where_it_cannot_be_is_refused(
        self, tmp_path: Path, where: str, approved: Approved
    ) -> None:
        ended = spotctl("init", tmp_path / where)
        approved(ended)

    def test_it_answers_in_json(self, tmp_path: Path) -> None:
        assert spotctl("init", tmp_path / "a.yaml", "--json").json == {
            "file": str(tmp_path / "a.yaml")
        }


PACKAGE = {
    "parts/__init__.py": "",
    "parts/train.py": "from .data import x\n",
    "parts/data.py": "x = 1",
}


@pytest.mark.parametrize(
    ("typed", "run"),
    [
        (["train.py", "j.yaml", "--", "--lr", "3"], "python train.py --lr 3"),
        (["python train.py --lr 3", "j.yaml"], "python train.py --lr 3"),
        (["train.py --lr 3", "j.yaml"], "python train.py --lr 3"),
        (["torchrun -n 2 train.py --lr 3", "j.yaml"], "torchrun -n 2 train.py --lr 3"),
        (["A=1 python -u train.py", "j.yaml", "--", "--lr", "3"], "A=1 python -u train.py --lr 3"),
        (["python -m parts.train --lr 3", "j.yaml"], "python -m parts.train --lr 3"),
        (["parts/train.py", "j.yaml", "--", "--lr", "3"], "python -m parts.train --lr 3"),
        (["my train.py", "j.yaml", "--", "--lr", "3"], "python 'my train.py' --lr 3"),
    ],
)
def test_a_script_is_started_as_it_is_typed(
    typed: list[str], run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    script = "import sys\nprint(sys.argv)\n"
    for name, text in {"train.py": script, "my train.py": script, **PACKAGE}.items():
        Path(name).write_text(text)
    ended = spotctl("init", *typed[:2], "--yes", *typed[2:])
    assert ended.code == 0, ended.err
    assert load(Path("j.yaml")).program == Command(run)


@pytest.mark.parametrize(
    ("text", "is_rank"),
    [
        ("import os\nrank = os.environ['RANK']\n", True),
        ("import torch\ntorch.distributed.init_process_group('gloo')\n", True),
        (
            "import torch\ntorch.distributed.init_process_group(\n'gloo', rank=0, world_size=1)\n",
            False,
        ),
    ],
)
def test_a_script_that_is_a_rank_gets_a_launcher(
    text: str, is_rank: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(text)
    assert spotctl("init", "train.py", "j.yaml", "--yes").code == 0
    assert ("run: python -m torch.distributed.run" in Path("j.yaml").read_text()) == is_rank


def test_a_command_without_a_script_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = spotctl("init", "python -m package --lr 3", "j.yaml")
    assert (ended.code, "is no file; give init the script" in ended.err) == (2, True)
    assert not [*tmp_path.iterdir()]
