"""The starter job file that `init` writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

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


@pytest.mark.parametrize("words", [["train.py", "--", "--lr", "3"], ["python train.py --lr 3"]])
def test_a_scripts_arguments_become_part_of_its_command(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import sys\nprint(sys.argv)\n")
    first, *others = words
    assert spotctl("init", first, "j.yaml", "--yes", *others).code == 0
    assert "train.py --lr 3" in Path("j.yaml").read_text()


def test_a_command_without_a_script_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = spotctl("init", "python -m package --lr 3", "j.yaml")
    assert (ended.code, "is no file; give init the script" in ended.err) == (2, True)
    assert not [*tmp_path.iterdir()]
