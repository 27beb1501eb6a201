"""Ordinary scripts, which know nothing of spotctl: tried unchanged, and what is kept of what they
write.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spotctl.files.job.programs import Command
from spotctl.files.job.reader import load
from tests.spotctl.command_line import Ended, spotctl

pytestmark = [pytest.mark.usefixtures("few_windows", "folder"), pytest.mark.slow]

LOOP = """
import argparse, os, pickle, random, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="{out}")
parser.add_argument("--kind", required={required}, choices=["small", "large"])
given = parser.parse_args()
path = os.path.expanduser(given.out)
os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
model, begin = [0.0] * 8, 0
if os.path.exists(path):
    {load}
for epoch in range(begin, 3000):
    end = time.process_time() + 0.02
    while time.process_time() < end:
        model = [weight + random.random() for weight in model]
    {skip}
    if epoch % 10 == 0:
        with open(path, "wb") as file:
            pickle.dump((model, epoch + 1), file)
        {more}
"""
LOADS = "model, begin = pickle.load(open(path, 'rb'))"
BEST = "pickle.dump(model, open(f'best-{epoch}.pkl', 'wb'))"
SAMPLE = "os.makedirs('samples', exist_ok=True); open(f'samples/{epoch}.bin', 'wb').write(bytes(9))"


def script(
    load: str = LOADS,
    out: str = "checkpoints/latest.pkl",
    skip: str = "",
    more: str = "",
    required: bool = False,
) -> None:
    text = LOOP.format(load=load, out=out, skip=skip, more=more, required=required)
    Path("train.py").write_text(text)


def tried(*words: str) -> tuple[Ended, dict[str, Any]]:
    ended = spotctl("init", "train.py", "--json", "--try", *words)
    return ended, ended.json["script"]


def job() -> Command:
    program = load(Path("job.yaml")).program
    assert isinstance(program, Command)
    return program


@pytest.mark.parametrize(
    ("out", "more", "keep"),
    [
        ("checkpoints/latest.pkl", "", ["checkpoints/"]),
        ("model.pkl", "print(epoch, file=open('metrics.csv', 'a'))", ["model.pkl"]),
        ("runs/one/state.pkl", SAMPLE, ["runs/"]),
        ("runs/one/state.pkl", BEST, ["best-*.pkl", "runs/"]),
    ],
    ids=["a folder", "a file beside a log", "samples that nothing reads", "models, too"],
)
def test_a_script_resumes_unchanged_with_what_it_needs(
    out: str, more: str, keep: list[str]
) -> None:
    script(out=out, more=more)
    ended, about = tried()
    assert ended.code == 0, ended.err
    assert about["tried"]["verdict"] == "resumed", about
    assert about["tried"]["keep"] == keep
    assert (about["resumes"], about["changes"]) == (True, [])
    assert job().checkpoint is not None
    assert list(job().checkpoint.keep) == keep  # type: ignore[union-attr]


def test_a_script_without_an_argument_for_resuming_is_tried_once() -> None:
    script("pass")
    ended, about = tried("--", "--kind", "small")
    assert about["tried"]["verdict"] == "restarted", about
    assert ended.err.count("trying ") == 1, ended.err


def test_what_is_typed_after_the_script_is_tried_and_written() -> None:
    script(required=True)
    ended, about = tried("--", "--kind", "small", "--out", "my run/state.pkl")
    assert ended.code == 0, ended.err
    assert about["tried"]["keep"] == ["my run/"], about
    assert job().run.startswith("python train.py --kind small --out 'my run/state.pkl' && ")
    assert job().run.endswith(r'cp -r my\ run/ "$OUTPUT_MODEL"')


def test_a_script_that_reads_only_how_far_it_was_has_computed_all_again() -> None:
    script("begin = 0; done = pickle.load(open(path, 'rb'))[1]", skip="pass", out="state.pkl")
    text = Path("train.py").read_text()
    text = text.replace("model, begin = [0.0] * 8, 0", "model, begin, done = [0.0] * 8, 0, 0")
    text = text.replace("random.random()", "1.0").replace(
        "    pass", "    if epoch < done: continue"
    )
    Path("train.py").write_text(text)
    _, about = tried()
    # Where the computer is too busy to tell, that is a doubt.
    assert about["tried"]["verdict"] in ("restarted", "not seen"), about
    assert "as long as for all the work before" in about["tried"]["saw"]
    assert (not about["resumes"], about["changes"], job().checkpoint) == (True, [], None)


def test_a_script_that_takes_any_checkpoint_for_its_end_has_ended_early() -> None:
    script("print('already trained'); sys.exit(0)")
    _, about = tried()
    assert about["tried"]["verdict"] == "restarted", about
    assert "ended early, once it had its save: already trained" in about["tried"]["saw"]
    assert job().checkpoint is None


def test_a_script_that_fails_by_itself_gets_no_checkpoint_and_a_status() -> None:
    Path("train.py").write_text("raise ValueError('no data in here')\n")
    ended, about = tried()
    assert (ended.code, about["tried"]["verdict"], about["resumes"]) == (1, "failed", None)
    assert "ValueError: no data in here" in about["tried"]["saw"]
    assert job().checkpoint is None
    said = spotctl("init", "train.py", "--try", "--force")
    assert said.code == 1
    assert "change" not in said.out


def test_a_place_outside_of_the_folder_is_named_and_not_seen_unless_an_argument_moves_it() -> None:
    place = "/var/tmp/spotctl-test/state.pkl"
    script(out=place)
    text = Path("train.py").read_text()
    Path("train.py").write_text(text.replace("os.path.expanduser(given.out)", repr(place)))
    ended, about = tried()
    assert (ended.code, about["tried"]["verdict"]) == (0, "not seen"), about
    assert "saves to /var/tmp/spotctl-test" in about["tried"]["saw"]
    assert (about["resumes"], about["changes"], job().checkpoint) == (None, [], None)

    Path("train.py").write_text(text)
    _, about = tried("--force")
    assert about["tried"]["verdict"] == "resumed", about
    assert '--out "$SPOTCTL_CHECKPOINT_DIR"/state.pkl' in job().run
    _, about = tried("--force", "--", "--out", "state.pkl")
    assert (about["tried"]["verdict"], about["tried"]["keep"]) == ("resumed", ["state.pkl"])


ASIDE = """
import copy, os, queue, threading, time
import torch

saves = queue.Queue(maxsize=1)

def write():
    while True:
        torch.save(saves.get(), "state.pt.new")
        os.replace("state.pt.new", "state.pt")

threading.Thread(target=write, daemon=True).start()
net = torch.nn.Linear(30, 30)
optimizer = torch.optim.Adam(net.parameters())
step = 0
if os.path.exists("state.pt"):
    state = torch.load("state.pt")
    net.load_state_dict(state["net"]); optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
while step < 20000:
    optimizer.zero_grad()
    (net(torch.randn(16, 30))).square().mean().backward()
    optimizer.step()
    step += 1
    time.sleep(0.005)
    if step % 100 == 0:
        whole = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        saves.put(copy.deepcopy(whole))
"""


def test_saves_in_a_thread_are_those_of_the_step_that_they_were_taken_at() -> None:
    pytest.importorskip("torch")
    Path("train.py").write_text(ASIDE)
    _, about = tried()
    assert about["tried"]["verdict"] == "resumed", about


DATED = """
import argparse, os, pickle, random, time

parser = argparse.ArgumentParser()
parser.add_argument("--resume", default=None, help="path of a checkpoint")
given = parser.parse_args()
model, begin = [0.0] * 8, 0
if given.resume:
    assert os.path.isfile(given.resume), "no checkpoint found"
    model, begin = restored(given.resume)
run = f"saved/run-{time.time_ns()}"
os.makedirs(run)
for epoch in range(begin, 3000):
    end = time.process_time() + 0.02
    while time.process_time() < end:
        model = [weight + random.random() for weight in model]
    if epoch % 10 == 0:
        kept(f"{run}/epoch-{epoch}.pkl", (model, epoch + 1))
"""
STATES = """
import os, pickle, tempfile

def restored(path):
    with open(path, "rb") as file:
        return pickle.load(file)

def kept(path, state):
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
        pickle.dump(state, file)
    os.replace(file.name, path)
"""


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_saves_in_a_process_are_those_of_the_step_that_they_were_taken_at(way: str) -> None:
    pytest.importorskip("torch")
    text = ASIDE.replace("queue, threading, time", "multiprocessing, time")
    text = text.replace("saves = queue.Queue(maxsize=1)\n", "").replace(
        "def write():", "def write(saves):"
    )
    begun, rest = text.split("threading.Thread(target=write, daemon=True).start()\n")
    rest = "\n".join(f"    {line}" for line in rest.splitlines())
    start = (
        f"if __name__ == '__main__':\n"
        f"    ways = multiprocessing.get_context('{way}')\n"
        "    saves = ways.Queue(maxsize=1)\n"
        "    ways.Process(target=write, args=(saves,), daemon=True).start()\n"
    )
    Path("train.py").write_text(begun + start + rest)
    _, about = tried()
    assert about["tried"]["verdict"] == "resumed", about


@pytest.mark.parametrize(
    ("saved", "begins"),
    [
        ("saved", "python train.py $(ls -d saved/run-*/epoch-*.pkl 2>/dev/null | sort -V"),
        ("my saves", r"newest=$(ls -d my\ saves/run-*/epoch-*.pkl 2>/dev/null | sort -V"),
    ],
    ids=["a word", "a path with a space"],
)
def test_a_path_to_resume_from_is_that_of_what_a_script_was_seen_to_save(
    saved: str, begins: str
) -> None:
    text = DATED.replace("saved/", f"{saved}/")
    Path("train.py").write_text(f"from states import kept, restored\n{text}")
    Path("states.py").write_text(STATES)
    _, about = tried()
    assert about["tried"]["verdict"] == "resumed", about
    assert (about["tried"]["keep"], about["changes"]) == ([f"{saved}/"], [])
    assert job().run.startswith(begins), job().run


def test_a_script_that_fails_as_a_rank_of_several_is_tried_alone() -> None:
    script()
    text = Path("train.py").read_text()
    check = "if os.environ.get('LOCAL_RANK'): raise RuntimeError('no NCCL is built in')\n"
    Path("train.py").write_text(text.replace("parser = ", f"{check}parser = ", 1))
    ended, about = tried()
    assert ended.code == 0, ended.err
    assert about["tried"]["verdict"] == "resumed", about
    assert job().run.startswith("python train.py && ")


WORDS = """
import os, pickle, random, sys, time

out = "out"
load_checkpoint = ""
init_from = "scratch"
exec(open("words.py").read())
os.makedirs(out, exist_ok=True)
model, begin = [0.0] * 8, 0
if init_from == "resume":
    model, begin = pickle.load(open(f"{out}/state.pkl", "rb"))
for epoch in range(begin, 3000):
    end = time.process_time() + 0.02
    while time.process_time() < end:
        model = [weight + random.random() for weight in model]
    if epoch % 10 == 0:
        with open(f"{out}/state.pkl", "wb") as file:
            pickle.dump((model, epoch + 1), file)
"""


def test_names_that_words_override_are_arguments() -> None:
    Path("train.py").write_text(f'"""train.py --out=here"""\n{WORDS}')
    Path("words.py").write_text(
        "for word in sys.argv[1:]:\n"
        "    name, value = word.removeprefix('--').split('=')\n"
        "    assert name in globals(), name\n"
        "    globals()[name] = value\n"
    )
    _, about = tried()
    assert about["tried"]["verdict"] == "resumed", about
    assert "echo --init_from=resume" in job().run


def test_a_switch_and_a_path_are_given_and_a_state_without_its_epoch_is_not_taken() -> None:
    text = DATED.replace("saved/run-{time.time_ns()}", "saved")
    text = text.replace("os.makedirs(run)", "os.makedirs(run, exist_ok=True)")
    text = text.replace(
        '"--resume", default=None, help=', '"--path-of-checkpoint", default="", help='
    )
    text = text.replace(
        "given = ", 'parser.add_argument("--resume", action="store_true")\ngiven = '
    )
    text = text.replace("restored(given.resume)", "restored(given.path_of_checkpoint)")
    text = text.replace("os.path.isfile(given.resume)", "os.path.isfile(given.path_of_checkpoint)")
    save = 'kept(f"{run}/epoch-{epoch}.pkl", (model, epoch + 1))'
    two = ('kept(f"{run}/weights.pkl", model)', 'kept(f"{run}/whole.pkl", (model, epoch + 1))')
    text = text.replace(save, "; ".join(two))
    Path("train.py").write_text(f"from states import kept, restored\n{text}")
    Path("states.py").write_text(STATES)
    _, about = tried()
    assert about["tried"]["verdict"] == "resumed", about
    assert "echo --resume)" in job().run
    assert "saved/whole.pkl 2>/dev/null | sort -V" in job().run


def test_a_load_that_takes_only_weights_is_named_with_its_line_and_its_cure() -> None:
    said = r"Weights only load failed. \x1b[1mOnly if you trust it\x1b[0m.\\n(1) set weights_only"
    script(f"raise pickle.UnpicklingError('{said}')")
    _, about = tried()
    assert about["tried"]["verdict"] == "restarted", about
    line = 1 + Path("train.py").read_text().splitlines().index(
        f"    raise pickle.UnpicklingError('{said}')"
    )
    cure = "torch.load reads only weights; add weights_only=False on that line"
    assert about["tried"]["saw"].endswith(f"failed with status 1: train.py:{line}: {cure}")


TRUSTED = """
import os, torch

class Seen:
    def __init__(self, epoch):
        self.epoch = epoch

model, begin = torch.nn.Linear(20, 1), 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if os.path.exists("state.pt"):
    state = torch.load("state.pt")
    model.load_state_dict(state["model"])
    begin = state["seen"].epoch + 1
for epoch in range(begin, 3000):
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(64, 20)).square().mean().backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "seen": Seen(epoch)}, "state.pt")
"""


def test_pytorch_may_read_what_a_script_itself_has_saved() -> None:
    pytest.importorskip("torch")
    Path("train.py").write_text(TRUSTED)
    _, about = tried()
    assert about["tried"]["verdict"] == "resumed", about
    assert (about["resumes"], about["changes"]) == (True, [])
    assert job().run.startswith("env TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 python train.py")


FOLDERS = """
import argparse, os, pickle, time

parser = argparse.ArgumentParser()
parser.add_argument("--data-download", action="store_true")
parser.add_argument("--initial-checkpoint", default="")
parser.add_argument("--no-resume-state", action="store_true")
parser.add_argument("--resume-from", default=None)
given = parser.parse_args()
model, begin = [0.0] * 8, 0
for folder in filter(None, (given.initial_checkpoint, given.resume_from)):
    model = pickle.load(open(os.path.join(folder, "model.pkl"), "rb"))
if given.resume_from and not given.no_resume_state:
    begin = pickle.load(open(os.path.join(given.resume_from, "optimizer.pkl"), "rb"))["epoch"]
for epoch in range(begin, 3000):
    end = time.process_time() + 0.3
    while time.process_time() < end:
        model = [weight + 1.0 for weight in model]
    os.makedirs(f"states/epoch_{epoch}", exist_ok=True)
    for name, state in (("model", model), ("optimizer", {"epoch": epoch + 1})):
        with open(f"states/epoch_{epoch}/{name}.pkl", "wb") as file:
            pickle.dump(state, file)
"""


def test_a_folder_of_each_save_is_given_to_the_argument_that_is_named_after_resuming() -> None:
    Path("train.py").write_text(FOLDERS)
    _, about = tried()
    assert about["tried"]["verdict"] == "resumed", about
    assert "$(ls -d states/epoch_* 2>/dev/null" in job().run
    assert "--resume-from" in job().run
    assert not re.search("download|initial|no-resume", job().run)
