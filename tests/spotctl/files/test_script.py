"""`spotctl init train.py`: what it reads in scripts of the kinds that people have, and the job that
it writes.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from pricing_data.units import HOUR
from spotctl.files.job.reader import load, loads
from spotctl.files.job.spec import JobSpec
from spotctl.files.script.job_text import ScriptAnswers, job_text
from spotctl.files.script.reading import Change, TrainingScript, applied, outside_paths, read_script
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl
from tests.spotctl.terminals import terminal

pytestmark = pytest.mark.usefixtures("few_windows")

SCRIPTS = Path(__file__).parent / "public_scripts"
PUBLIC = ("imagenet", "word_language_model", "run_glue", "autoencoder", "out_of_core")
FOLDER, RESULT = '"$SPOTCTL_CHECKPOINT_DIR"', '"$OUTPUT_MODEL"'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def script(text: str, name: str = "train.py") -> TrainingScript:
    Path(name).write_text(text)
    return read_script(Path(name), Path.cwd())


def public(name: str) -> str:
    shutil.copy(SCRIPTS / f"{name}.py", ".")
    return f"{name}.py"


def change(name: str) -> Ended:
    """Changes a script by the lines that init names."""
    ended = spotctl("init", name, "job.yaml", "--force", "--json")
    changes = [Change(**change) for change in ended.json["script"]["changes"]]
    Path(name).write_text(applied(Path(name).read_text(), changes))
    return ended


def job() -> JobSpec:
    return load(Path("job.yaml"))


@pytest.mark.parametrize("name", PUBLIC)
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
    changes = change(path).json["script"]["changes"]
    assert 1 <= len(changes) <= 3
    ast.parse(Path(path).read_text())
    ended = spotctl("init", path, "--force", "--json")
    assert (ended.json["script"]["resumes"], ended.json["script"]["changes"]) == (True, [])
    assert job().program.checkpoint is not None  # type: ignore[union-attr]
    assert "no checkpoint" not in spotctl("plan", "job.yaml").out


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("imagenet", f"--resume {FOLDER}/checkpoint.pth.tar && cp -r {FOLDER}/. {RESULT}"),
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


def test_a_file_that_is_also_saved_while_training_is_no_result() -> None:
    Path("train.py").write_text(
        """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--save", default="last.pt")
parser.add_argument("--out", default="final.pt")
args = parser.parse_args()
net = torch.nn.Linear(1, 1)
for epoch in range(9):
    net(torch.ones(1)).backward()
    torch.save(net.state_dict(), args.save)
torch.save(net.state_dict(), args.save)
torch.save(net.state_dict(), args.out)
"""
    )
    assert spotctl("init", "train.py").code == 0
    assert job().program.run == f"python train.py --out {RESULT}/final.pt"  # type: ignore[union-attr]


def test_the_lines_to_change_are_those_of_the_script() -> None:
    public("word_language_model")
    ended = spotctl("init", "word_language_model.py")
    assert ended.out.splitlines()[1:] == [
        "So that evictions lose no work, change 2 lines of word_language_model.py:",
        "  before line 9, insert:",
        "from spotctl.integrations.loops import resuming",
        "  replace line 69 by:",
        "    for epoch in resuming(range(1, args.epochs + 1), model):",
        "These start again after an eviction, unless you keep them in a dict for resuming(): "
        "best_val_loss, lr",
    ]


def test_a_loop_in_a_function_names_what_the_function_sees() -> None:
    text = """\
import torch


def fit_all(net, optimizer, loader):
    for number in range(9):
        for batch in loader:
            optimizer.zero_grad()
            net(batch).backward()
        torch.save(net.state_dict(), "a.pt")


net = torch.nn.Linear(1, 1)
fit_all(net, torch.optim.SGD(net.parameters(), 1), [])
"""
    assert [line.text.strip() for line in script(text).changes] == [
        "from spotctl.integrations.loops import resuming",
        "for number in resuming(range(9), net, optimizer):",
    ]


def test_keras_gets_the_callback_of_keras() -> None:
    text = (
        "from tensorflow import keras\n\nm = keras.Model()\nm.fit(a, b, "
        "callbacks=[stop])\nm.save('m.keras')\n"
    )
    found = script(text)
    backup = 'keras.callbacks.BackupAndRestore(os.environ.get("SPOTCTL_CHECKPOINT_DIR", "."))'
    assert [line.text for line in found.changes] == [
        "import os",
        f"m.fit(a, b, callbacks=[{backup}, stop])",
    ]
    again = script(applied(text, found.changes))
    assert again.resumes
    assert [save.place.name for save in again.final_saves] == ["m.keras"]


def test_a_change_that_would_break_the_script_is_not_proposed() -> None:
    text = "import lightning as L\n\ntrainer = L.Trainer(x for x in ())\ntrainer.fit(1)\n"
    assert script(text).changes == ()


def test_a_script_without_a_loop_is_told_what_to_do() -> None:
    Path("train.py").write_text(
        "import joblib, sklearn.svm\n\nm = sklearn.svm.SVC().fit(x, y)\njoblib.dump(m, 'm')\n"
    )
    ended = spotctl("init", "train.py")
    assert ended.out.startswith("train.py saves nothing while it trains: each eviction")
    assert "Change train.py by hand, as spotctl knows no lines that would help" in ended.out
    assert job().program.run == f"python train.py && cp -r m {RESULT}"  # type: ignore[union-attr]


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


SWITCHED = """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--save-model", action="store_true")
args = parser.parse_args()
net = torch.nn.Linear(1, 1)
for epoch in range(3):
    net(1).backward()
if args.save_model:
    torch.save(net.state_dict(), "net.pt")
"""


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (SWITCHED, f"--save-model && cp -r net.pt {RESULT}"),
        (
            SWITCHED.replace("if args.save_model", "if net.good"),
            f"&& {{ cp -r net.pt {RESULT} || true; }}",
        ),
    ],
    ids=["switch", "condition"],
)
def test_a_result_that_is_saved_under_a_condition(text: str, command: str) -> None:
    Path("train.py").write_text(text)
    assert spotctl("init", "train.py").code == 0
    assert job().program.run == f"python train.py {command}"  # type: ignore[union-attr]


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


def test_a_load_for_another_value_of_a_constant_does_not_count() -> None:
    assert not script(CONSTANT).can_load
    found = script(CONSTANT.replace('"scratch"', '"resume"'))
    line = 'out_dir = os.environ.get("SPOTCTL_CHECKPOINT_DIR", "out")'
    assert [change.text for change in found.changes] == [line]
    assert script(applied(found.source.text, found.changes)).resumes
    first, second = script(CONSTANT).changes
    there = f'{line.removeprefix("out_dir = ")} + "/ckpt.pt"'
    assert (first.text, second.text) == (
        line,
        f'init_from = "resume" if os.path.exists({there}) else "scratch"',
    )


def test_two_constants_on_one_line_are_changed_together() -> None:
    joined = CONSTANT.replace('"out"\ninit_from', '"out"; init_from')
    [change] = script(joined).changes
    assert change.line == 4
    assert script(applied(joined, [change])).resumes


SETTINGS = """\
import json
import torch

def train():
    with open("settings.json") as file:
        settings = json.load(file)
    if settings["train"]["mode"] == "resume":
        checkpoint = torch.load(settings["train"]["out"] + "/ckpt.pt")
    while True:
        model.train()
        torch.save(checkpoint, settings["train"]["out"] + "/ckpt.pt")
        loss.backward()
"""


def test_settings_from_a_file_are_changed_where_they_are_read() -> None:
    found = script(SETTINGS)
    assert not found.resumes
    texts = [change.text for change in found.changes]
    out = 'settings["train"]["out"]'
    assert texts == [
        "import os",
        f'    {out} = os.environ.get("SPOTCTL_CHECKPOINT_DIR") or {out}',
        f'    if os.path.exists({out} + "/ckpt.pt"): settings["train"]["mode"] = "resume"',
    ]
    changed = applied(SETTINGS, found.changes)
    assert changed.index(texts[1]) < changed.index(texts[2]) < changed.index("    if settings")
    assert script(changed).resumes


def test_a_load_under_a_condition_is_not_said_to_be_missing() -> None:
    Path("train.py").write_text(CONSTANT)
    assert spotctl("init", "train.py").out.startswith(
        "train.py loads what it saves only if init_from == 'resume': "
    )


def test_what_machines_install(folder: Path) -> None:
    text = "import cv2\nimport yaml\nimport os\nfrom helpers import x\nimport torch\n"
    (folder / "helpers.py").touch()
    assert script(text).libraries.install == "opencv-python-headless pyyaml torch"
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert script(text).libraries.install == "."
    (folder / "requirements.txt").write_text("torch\n")
    assert script(text).libraries.install == "-r requirements.txt"


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


def test_a_job_file_is_written_over_only_with_force(approved: Approved) -> None:
    public("out_of_core")
    Path("job.yaml").write_text("mine")
    refused = spotctl("init", "out_of_core.py")
    approved(refused)
    assert Path("job.yaml").read_text() == "mine"
    assert spotctl("init", "out_of_core.py", "--force").code == 0
    assert job().name == "out-of-core"


@pytest.mark.parametrize("name", ["out_of_core", "job.yaml"])
def test_a_trainer_needs_a_network(name: str, approved: Approved) -> None:
    refused = spotctl("init", public(name) if name in PUBLIC else name, "--trainer")
    approved(refused)
    assert not Path("job.yaml").exists()


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


def test_paths_outside_of_the_copy_are_listed() -> None:
    text = (
        "a, b = '/mnt/x/y.bin', f'{a}/z'\nc, d, e = '~/models/m', '../up', '/dev/null'\nf, g = "
        "'in/side', '/'\n"
    )
    assert outside_paths(script(text).source) == ["../up", "/mnt/x/y.bin", "~/models/m"]


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
        r"train.py was tried here: resumed: saved loop-\d+.pickle after \d+ s; killed and", said
    ), said


@pytest.mark.parametrize(
    "words",
    [("train.py", "--try", "--allow", "disk"), ("job.yaml", "--try")],
    ids=["allow", "a job file"],
)
def test_a_trial_that_cannot_be_is_refused(words: tuple[str, ...], approved: Approved) -> None:
    Path("train.py").write_text(FRESH)
    approved(spotctl("init", *words))
    assert not Path("job.yaml").exists()


def test_a_script_that_needs_a_value_is_not_tried() -> None:
    Path("train.py").write_text(TYPER)
    tried = spotctl("init", "train.py", "--json", "--try").json["script"]["tried"]
    assert tried == {
        "verdict": "not seen",
        "saw": "the command lacks a value that only you know: CORPUS",
    }


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
