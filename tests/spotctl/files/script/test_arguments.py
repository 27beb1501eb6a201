"""Arguments, settings and constants of a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.command_line import spotctl
from tests.spotctl.files.script.test_reading import FOLDER, RESULT, TYPER, job, script

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]

CLICK = """\
import pickle
from pathlib import Path

import click


@click.command()
@click.option("--epochs", default=3)
@click.option("--out-dir", default="out")
@click.argument("corpus")
def main(epochs, out_dir, corpus):
    state, path = {"n": 0}, Path(out_dir) / "state.pkl"
    path = Path(out_dir) / "state.pkl"
    if path.exists():
        state = pickle.load(path.open("rb"))
    for epoch in range(state["n"], epochs):
        learn(state)
        with path.open("wb") as f:
            pickle.dump(state, f)


def learn(state):
    state["net"].backward()


main()
"""


FIRE = TYPER.replace("typer.run(main)", "fire.Fire(main)").replace("import typer", "import fire")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (CLICK, f"CORPUS --out-dir {FOLDER} && cp -r {FOLDER}/. {RESULT}"),
        (TYPER, f"CORPUS --checkpoint {FOLDER}/last.pt && cp -r {FOLDER}/. {RESULT}"),
        (FIRE, f"CORPUS --checkpoint {FOLDER}/last.pt && cp -r {FOLDER}/. {RESULT}"),
    ],
    ids=["click", "typer", "fire"],
)
def test_arguments_of_other_parsers_keep_the_checkpoint(text: str, command: str) -> None:
    Path("train.py").write_text(text)
    ended = spotctl("init", "train.py", "--json")
    assert ended.json["script"]["resumes"]
    assert ended.json["script"]["fill_in"] == ["CORPUS"]
    assert job().program.run == f"python train.py {command}"  # type: ignore[union-attr]


def test_arguments_are_read_in_a_module_of_the_script_and_in_commands_by_name() -> None:
    Path("options.py").write_text(
        "import argparse\n\n\ndef given():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--resume', action='store_true')\n    return parser.parse_args()\n"
    )
    assert "resume" in script("from options import given\n\nprint(given())\n").arguments
    Path("export.py").write_text(
        "import argparse\n\nx = 1\nif __name__ == '__main__':\n"
        "    parser = argparse.ArgumentParser()\n    parser.add_argument('--checkpoint')\n"
    )
    assert "checkpoint" not in script("from export import x\n\nprint(x)\n").arguments
    text = "import fire\n\n\ndef run(resume_from=None):\n    pass\n\n\nfire.Fire({'run': run})\n"
    assert script(text).arguments["resume_from"].flag == "--resume-from"
