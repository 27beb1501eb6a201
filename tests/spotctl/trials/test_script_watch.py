"""Scripts whose saves and loads are watched while they run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spotctl.trials import script_watch
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.layout_scripts_run import bring
from tests.spotctl.files.script.test_reading_layouts import HONEST, LIARS

pytestmark = pytest.mark.usefixtures("few_windows")

SWITCHED_OFF = ("yaml_config",)
"""Scripts whose settings say that they start again."""

NEEDS = {"safetensors_pair": "safetensors", "typer_flag": "typer", "click_flag": "click"}


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", HONEST)
def test_each_layout_is_seen_to_resume(name: str, folder: Path) -> None:
    pytest.importorskip(NEEDS.get(name, "torch"))
    bring(name, folder)
    tried = spotctl("init", f"{name}.py", "--json", "--try").json["script"]["tried"]
    if name in SWITCHED_OFF:
        assert tried["verdict"] in ("restarted", "not seen"), tried
        return
    # A busy computer may be too slow for what a trial waits for: that is not seen, and no restart.
    assert tried["verdict"] in ("resumed", "not seen"), tried
    assert tried["verdict"] == "not seen" or re.search(r"continued at \w+ \d+", tried["saw"])


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(LIARS))
def test_a_liar_is_never_seen_to_resume(name: str, folder: Path) -> None:
    bring(name, folder)
    script = spotctl("init", f"{name}.py", "--json", "--try").json["script"]
    tried = script["tried"]
    assert tried["verdict"] in ("restarted", "not seen"), tried
    if tried["verdict"] == "restarted":
        assert re.search(LIARS[name], tried["saw"]), tried
        assert (script["resumes"], script["changes"]) == (False, [])
    assert script["resumes"] is not True or tried["verdict"] == "not seen"


SAVING = """
def save():
    for step in range(2):
        with open("state.bin", "wb") as file:
            file.write(b"state")
"""


@pytest.mark.parametrize(
    ("text", "is_aside"),
    [
        ("save()", False),
        ("import multiprocessing\nsave()", False),
        (
            "import multiprocessing\nif __name__ == '__main__':\n"
            "    child = multiprocessing.Process(target=save)\n    child.start()\n    child.join()",
            True,
        ),
    ],
    ids=["no multiprocessing", "no child", "a child"],
)
def test_only_what_a_child_process_saves_is_saved_aside(
    tmp_path: Path, text: str, is_aside: bool
) -> None:
    saves = [mark for mark in marks_of(tmp_path, SAVING + text) if mark["kind"] == "save"]
    assert [mark["aside"] for mark in saves] == [is_aside, is_aside]


def marks_of(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    folder, seen, probe = (tmp_path / name for name in ("job", "seen", "probe"))
    for place in (folder, seen, probe):
        place.mkdir()
    shutil.copy(script_watch.__file__, probe / "sitecustomize.py")
    (folder / "train.py").write_text(text)
    watched = {"SPOTCTL_TRIAL_SEEN": str(seen), "SPOTCTL_TRIAL_ROOTS": str(folder)}
    environment = {**os.environ, **watched, "PYTHONPATH": str(probe)}
    subprocess.run([sys.executable, "train.py"], cwd=folder, env=environment, check=True)
    lines = [line for file in seen.iterdir() for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def test_weights_are_seen_where_pytorch_saves_to_an_open_file(tmp_path: Path) -> None:
    text = (
        "import torch\nwith open('state.bin', 'wb') as file:\n    torch.save(torch.ones(2), file)\n"
    )
    states = [mark for mark in marks_of(tmp_path, text) if mark["kind"] == "state"]
    assert [(Path(mark["path"]).name, mark["weights"]) for mark in states] == [
        ("state.bin", [1.0, 1.0])
    ]


ENGINE = """
from types import SimpleNamespace

class Engine:
    def __init__(self, update):
        self.update, self.state = update, SimpleNamespace(iteration=0)

    def run(self):
        while True:
            self.state.iteration += 1
            self.update(self.state.iteration)
            if self.state.iteration == 2:
                break
"""


def test_what_a_library_counts_tells_where_a_training_stands(tmp_path: Path) -> None:
    (tmp_path / "ignite").mkdir()
    (tmp_path / "ignite" / "__init__.py").touch()
    (tmp_path / "ignite" / "engine.py").write_text(ENGINE)
    text = (
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom ignite.engine import Engine\n"
        "Engine(lambda _: open('state.bin', 'wb').close()).run()\n"
    )
    saves = [mark for mark in marks_of(tmp_path, text) if mark["kind"] == "save"]
    steps = [[each for each in mark["position"] if each[1] == "trainer"] for mark in saves]
    assert steps == [[["iteration", "trainer", 1]], [["iteration", "trainer", 2]]]


def test_a_sum_that_ends_a_loop_tells_where_it_stands(tmp_path: Path) -> None:
    text = (
        "step, begun = 0, 40\nwhile step + begun < 42:\n"
        "    open('state.bin', 'wb').close()\n    step += 1\n"
    )
    saves = [mark for mark in marks_of(tmp_path, text) if mark["kind"] == "save"]
    bounds = [["train.py:<module>:step", "bound", number] for number in (40, 41)]
    assert [mark["position"][0] for mark in saves] == bounds
