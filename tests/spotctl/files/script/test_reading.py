"""`spotctl init train.py`: what it reads in scripts of the kinds that people have, and the job that
it writes.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.files.script.reading import Change, TrainingScript, applied, read_script
from tests.spotctl.command_line import spotctl

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]

SCRIPTS = Path(__file__).parents[1] / "public_scripts"
PUBLIC = ("imagenet", "word_language_model", "run_glue", "autoencoder", "out_of_core")
FOLDER, RESULT = '"$SPOTCTL_CHECKPOINT_DIR"', '"$OUTPUT_MODEL"'


def script(text: str, name: str = "train.py") -> TrainingScript:
    Path(name).write_text(text)
    return read_script(Path(name), Path.cwd())


def public(name: str) -> str:
    shutil.copy(SCRIPTS / f"{name}.py", ".")
    return f"{name}.py"


def change(name: str) -> Sequence[Change]:
    """Changes a script by the lines that a trial would try; without one, init names none."""
    assert spotctl("init", name, "job.yaml", "--force", "--json").json["script"]["changes"] == []
    changes = read_script(Path(name), Path.cwd()).changes
    Path(name).write_text(applied(Path(name).read_text(), changes))
    return changes


def job() -> JobSpec:
    return load(Path("job.yaml"))


@pytest.mark.parametrize("name", PUBLIC[1:])
def test_the_plan_of_a_public_script_needs_no_edit_and_says_what_evictions_cost(name: str) -> None:
    path = public(name)
    ended = spotctl("init", path)
    assert ended.code == 0, ended.err
    first = ended.out.splitlines()[0]
    assert first.startswith(f"{path} ")
    plan = spotctl("plan", "job.yaml")
    assert plan.code == 0, plan.err
    assert (
        first.partition(": ")[2]
        == plan.out.splitlines()[0].partition(": no checkpoint, so ")[2].rstrip()
    )
    assert "each eviction, about every " in first


@pytest.mark.parametrize("name", PUBLIC)
def test_three_lines_at_most_make_a_public_script_resume(name: str) -> None:
    path = public(name)
    changes = change(path)
    assert (name != "imagenet") <= len(changes) <= 3
    ast.parse(Path(path).read_text())
    ended = spotctl("init", path, "--force", "--json")
    assert (ended.json["script"]["resumes"], ended.json["script"]["changes"]) == (True, [])
    assert job().program.checkpoint is not None  # type: ignore[union-attr]
    assert "no checkpoint" not in spotctl("plan", "job.yaml").out


@pytest.mark.parametrize(
    ("name", "command"),
    [
        (
            "imagenet",
            "$(ls -d checkpoint.pth.tar 2>/dev/null | sort -V | sed -n '$ {s|^|--resume |; p}') && "
            f"{{ cp -r checkpoint.pth.tar model_best.pth.tar {RESULT} || true; }}",
        ),
        ("word_language_model", f"--save {FOLDER}/model.pt && cp -r {FOLDER}/. {RESULT}"),
        ("run_glue", f"--output_dir {RESULT} --model_name_or_path MODEL_NAME_OR_PATH"),
        ("autoencoder", f"&& cp -r {FOLDER}/. {RESULT}"),
        ("out_of_core", f"&& cp -r classifier.joblib {RESULT}"),
    ],
)
def test_the_command_keeps_checkpoints_and_results(name: str, command: str) -> None:
    path = public(name)
    change(path)
    spotctl("init", path, "--force")
    assert job().program.run == f"python {path} {command}"  # type: ignore[union-attr]


def test_the_lines_to_change_are_those_of_the_script_and_untried_ones_are_not_proposed() -> None:
    path = public("word_language_model")
    said = spotctl("init", path).out.splitlines()
    assert said[1:] == [
        f"spotctl init {path} --try --force runs it here, and sees whether it resumes and what the "
        "next machine needs"
    ]
    found = read_script(Path(path), Path.cwd())
    assert [(line.line, line.act, line.text) for line in found.changes] == [
        (9, "insert", "from spotctl.integrations.loops import resuming"),
        (69, "replace", "    for epoch in resuming(range(1, args.epochs + 1), model):"),
    ]


def test_a_change_that_would_break_the_script_is_not_proposed() -> None:
    text = "import lightning as L\n\ntrainer = L.Trainer(x for x in ())\ntrainer.fit(1)\n"
    assert script(text).changes == ()


TYPER = """\
import typer
import torch


def main(corpus: str, checkpoint: str = "last.pt", rate: float = 0.1):
    net = torch.load(checkpoint)
    for epoch in range(3):
        net.backward()
        torch.save(net, checkpoint)


typer.run(main)
"""


BEST = """\
import torch
from spotctl.integrations.loops import resuming

net = torch.nn.Linear(1, 1)
for epoch in resuming(range(3), net):
    net(1).backward()
    torch.save(net.state_dict(), "best.pt")
"""


def test_what_a_resuming_loop_saves_by_itself_is_brought_back_too() -> None:
    Path("train.py").write_text(BEST)
    assert spotctl("init", "train.py").code == 0
    copies = f"&& {{ cp -r best.pt {RESULT} || true; }} && cp -r {FOLDER}/. {RESULT}"
    assert job().program.run == f"python train.py {copies}"  # type: ignore[union-attr]


CONSTANT = """\
import os
import torch

out_dir = "out"
init_from = "scratch"
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"))
while True:
    model.train()
    torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    loss.backward()
"""


FRESH = """\
import os, torch

where = "/mnt/data/corpus.bin"
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(10**6):
    optimizer.zero_grad()
    net(torch.rand(2)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_script_that_restarts_is_tried_with_the_changes_that_are_proposed() -> None:
    """Nothing is asked without a terminal, and only --try runs the script."""
    Path("train.py").write_text(FRESH)
    assert spotctl("init", "train.py", "--json").json["script"]["tried"] is None
    ended = spotctl("init", "train.py", "--json", "--try", "--force")
    assert ended.code == 0, ended.err
    assert ended.json["script"]["tried"]["verdict"] == "resumed", ended.json
    assert ended.json["script"]["resumes"] is False, "without the changes, it does not"
    assert (
        "which has tried it with the changes that it proposes: resumed."
        in Path("job.yaml").read_text()
    )
    assert sorted(path.name for path in Path().iterdir()) == ["job.yaml", "train.py"]
    change("train.py")
    said = spotctl("init", "train.py", "--try", "--force").out
    assert re.match(
        r"train.py, tried here: resumed: saved loop-\d+.pickle after \d+ s; killed and", said
    ), said


@pytest.mark.slow
def test_a_changed_script_is_launched_through_evictions_to_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole way of a newcomer: init, the printed lines, init, launch."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    path = public("out_of_core")
    change(path)
    assert spotctl("init", path, "--force").code == 0
    ended = spotctl("launch", "job.yaml", "--yes", "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["outcome"], Path("results/classifier.joblib").exists()) == ("done", True)
    assert ended.json["evictions"] > 0
    said = spotctl("logs", "out-of-core").out
    last = [line for line in said.splitlines() if " batch 59 " in line]
    assert last, said
    # Every batch is learned from once, however often the script was started again.
    assert last[-1].endswith("samples 30000")


@pytest.mark.parametrize(
    ("text", "results"),
    [
        (
            "for step in range(9):\n    np.save('c.npy', x)\nnp.save('final.npy', x)\n",
            ["final.npy"],
        ),
        ("def main():\n    while f():\n        g()\n    np.save('a.npy', x)\nmain()\n", ["a.npy"]),
        # What a function saves that a loop calls is no result, nor what comes before any loop.
        (
            "def save():\n    for k in y:\n        z(k)\n    np.save('c.npy', x)\n"
            "for step in range(9):\n    save()\n",
            [],
        ),
        ("np.save('begin.npy', x)\nfor step in range(9):\n    f(step)\n", []),
    ],
)
def test_what_a_script_without_an_optimizer_saves_last_is_its_result(
    text: str, results: list[str]
) -> None:
    read = script(f"import numpy as np\n{text}")
    assert [save.place.own_path for save in read.final_saves] == results
