"""`init SCRIPT`: questions, and what is assumed without them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.script.test_reading import (
    FRESH,
    PUBLIC,
    SCRIPTS,
    TYPER,
    change,
    job,
    public,
)
from tests.spotctl.terminals import terminal

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]


def test_on_a_terminal_it_asks_four_questions_at_most(folder: Path) -> None:
    change(public("out_of_core"))
    with terminal("init", "out_of_core.py", "--force") as window:
        for question, typed in (
            ("Where will out_of_core.py run", "mars"),
            ("'mars' is not one of local, aws, gcp, azure", "aws"),
            ("How long does it take on one machine", "long"),
            ("write 90s, 15m or 10h", "4h"),
            ("Which bucket", "my-models"),
            (
                "A trial runs out_of_core.py in a copy of its folder, without network, "
                "credentials, gpu",
                None,
            ),
            ("Try it on this computer?", "n"),
        ):
            window.wait_for(question)
            if typed is not None:
                window.type(f"{typed}\n")
        assert window.exit_code() == 0
        assert (
            "spotctl prices fetch --cloud aws --region us-east-1, then spotctl plan job.yaml"
            in window.screen
        )
    text = (folder / "job.yaml").read_text()
    assert "Assumed" not in text
    assert "checkpoint: {path: s3://my-models/out-of-core/checkpoints/}" in text
    spec = job()
    assert (spec.resources.clouds, spec.strategy) == (("aws",), "auto")
    assert spec.setup is not None
    assert "pip install -q joblib numpy scikit-learn" in spec.setup


def test_without_questions_the_file_says_what_is_assumed(folder: Path) -> None:
    public("out_of_core")
    assert spotctl("init", "out_of_core.py", "-y").code == 0
    assert (
        "# Assumed: the local market, replayed on this computer; 1m of training"
        in (folder / "job.yaml").read_text()
    )


def test_a_script_elsewhere_is_run_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(SCRIPTS / "out_of_core.py", tmp_path / "elsewhere")
    assert spotctl("init", tmp_path / "elsewhere" / "out_of_core.py").code == 0
    assert job().workdir == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.py", None),
        ("train.sh", "python x.py\n"),
        ("train.py", "for x in\n"),
        ("train.py", ""),
        ("train.py", b"\xff\xfe\x00"),
        ("train.py", b"x = '\x00'"),
        ("folder.py", "folder"),
    ],
)
def test_what_is_not_a_script_is_refused_in_one_line(
    name: str, content: str | bytes | None, approved: Approved
) -> None:
    Path("other.py").touch()
    if content == "folder":
        Path(name).mkdir()
    elif content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    refused = spotctl("init", name)
    approved(refused)
    assert not Path("job.yaml").exists()


@pytest.mark.parametrize("name", ["out_of_core", "job.yaml"])
def test_a_trainer_needs_a_network(name: str, approved: Approved) -> None:
    refused = spotctl("init", public(name) if name in PUBLIC else name, "--trainer")
    approved(refused)
    assert not Path("job.yaml").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("train.py", "--try", "--allow", "disk"),
        ("job.yaml", "--try"),
        ("job.yaml", "--", "--lr", "1"),
    ],
    ids=["allow", "a job file", "words for a script"],
)
def test_a_trial_that_cannot_be_is_refused(words: tuple[str, ...], approved: Approved) -> None:
    Path("train.py").write_text(FRESH)
    approved(spotctl("init", *words))
    assert not Path("job.yaml").exists()


def test_a_script_that_needs_a_value_is_not_tried() -> None:
    Path("train.py").write_text(TYPER)
    tried = spotctl("init", "train.py", "--json", "--try").json["script"]["tried"]
    assert tried["verdict"] == "not seen"
    assert tried["saw"] == (
        "it needs a value of yours for CORPUS: add -- and what you type after the script"
    )
