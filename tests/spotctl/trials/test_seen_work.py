"""A script that is killed and started again: what a trial sees, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import pytest

from spotctl.agent.container.processes import marked
from spotctl.files.job.reader import load
from spotctl.home.errors import BadRequest
from spotctl.trials.rehearsal import rehearse
from spotctl.trials.seen_work import Judgement, Verdict, WorkMark, judged
from spotctl.trials.starts import TrialTerms
from tests.spotctl.launches import command

pytestmark = [pytest.mark.usefixtures("scratch"), pytest.mark.usefixtures("few_windows")]


SECONDS = 500.0
"""More than the trial of any script takes here: a minute is for scripts that save late."""

TORCH = """
import os
import torch

path = os.path.join(os.environ["SPOTCTL_CHECKPOINT_DIR"], {name})
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
begin = 0
if os.path.exists({read}):
    state = torch.load({read})
    {load}
for epoch in range(begin, 400):
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    state = {{"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}}
    torch.save(state, path + ".new")
    os.replace(path + ".new", path)
"""
WHOLE = (
    "net.load_state_dict(state['net']); optimizer.load_state_dict(state['optimizer']); begin = "
    "state['epoch'] + 1"
)

LAST = """
    if epoch == begin + 400 - 1:
        torch.save(net.state_dict(), path + ".last")
"""


def running(folder: str) -> list[int]:
    """The processes of a trial below a folder, also those that have left its group."""
    return [pid for pid, mark in marked() if folder in str(mark)]


def seen(folder: Path, text: str, run: str = "python train.py", **terms: object) -> Judgement:
    (folder / "train.py").write_text(text)
    path = command(folder, run)
    path.write_text(path.read_text() + f"checkpoint: {{path: {folder / 'kept'}}}\n")
    said = list[str]()
    chosen = TrialTerms(**{"seconds": SECONDS, "allowed": (), "random": Random(3), **terms})  # type: ignore[arg-type]
    _, found = rehearse(load(path), folder / "cache", chosen, said.append)
    place = tempfile.gettempdir()
    assert (running(place), list(Path(place).iterdir())) == ([], [])
    return found


def torch_script(load: str, name: str = "'state.pt'", read: str = "path") -> str:
    return TORCH.format(load=load, name=name, read=read)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "saw"),
    [
        (torch_script(WHOLE), "continued at epoch"),
        (torch_script("print('resumed from', path)"), "began again at epoch 0"),
        (torch_script("begin = state['epoch'] + 1"), "with weights that it had not saved"),
        (torch_script(WHOLE.replace("+ 1", "* 0")), "began again at epoch 0"),
        (torch_script(WHOLE.replace("+ 1", "")), "; save the number of the next one"),
        (torch_script(f"{WHOLE}; begin = min(begin, 1)"), "it had saved"),
        (torch_script(WHOLE).replace("begin, 400", "begin, begin + 400"), "but goes on to 40"),
        (torch_script(WHOLE) + LAST, "waits for epoch 4"),
    ],
    ids=[
        "resumes",
        "ignores",
        "counts only",
        "counts from 0",
        "off by one",
        "an old epoch",
        "as long",
        "no last save",
    ],
)
def test_only_work_that_is_not_repeated_is_resumed(tmp_path: Path, text: str, saw: str) -> None:
    found = seen(tmp_path, text)
    assert saw in found.saw
    assert found.verdict is (Verdict.RESUMED if text == torch_script(WHOLE) else Verdict.RESTARTED)


PICKLE = """
import os, pickle, random, time

path = os.environ["SPOTCTL_CHECKPOINT_DIR"] + "/model.pickle"
model, done = [0.0], -1
if os.path.exists(path):
    with open(path, "rb") as file:
        model, done = pickle.load(file)
round = done + 1
while round < 500:
    model[0] += random.random()
    time.sleep(0.01)
    with open(path + "~", "wb") as file:
        pickle.dump((model, round), file)
    os.rename(path + "~", path)
    round += 1
"""


ELSEWHERE = (
    PICKLE.replace("import os,", "import tempfile, os,")
    .replace(
        'open(path + "~", "wb") as file:', "tempfile.NamedTemporaryFile(delete=False) as file:"
    )
    .replace('path + "~"', "file.name")
)
"""Written in a folder for temporary files, as Lightning does."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (PICKLE, Verdict.RESUMED),
        (PICKLE.replace("done + 1", "0"), Verdict.RESTARTED),
        (ELSEWHERE, Verdict.RESUMED),
        (ELSEWHERE.replace("done + 1", "0"), Verdict.RESTARTED),
    ],
    ids=[
        "resumes",
        "restarts",
        "resumes from files made elsewhere",
        "restarts with files made elsewhere",
    ],
)
def test_a_while_loop_without_pytorch(tmp_path: Path, text: str, verdict: Verdict) -> None:
    assert seen(tmp_path, text).verdict is verdict


OLDEST = """
import glob, os, pickle, time

folder = os.environ["SPOTCTL_CHECKPOINT_DIR"]
done = -1
for path in sorted(glob.glob(folder + "/*.pickle"))[:1]:
    with open(path, "rb") as file:
        done = pickle.load(file)
for epoch in range(done + 1, 900):
    path = f"{folder}/{epoch:03}.pickle"
    with open(path, "wb") as file:
        pickle.dump(epoch, file)
    time.sleep(0.5)
    os.utime(path)
    time.sleep(0.5)
"""


@pytest.mark.slow
def test_a_save_that_was_copied_twice_is_one_save(tmp_path: Path) -> None:
    """With a single save the oldest is the newest: only two show which one a script takes."""
    found = seen(tmp_path, OLDEST)
    assert found.verdict is Verdict.RESTARTED, found


RESUMING = """
import time
import torch
from spotctl.integrations.loops import resuming

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in resuming(range(4000), net, optimizer):
    optimizer.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_resuming_resumes(tmp_path: Path) -> None:
    found = seen(tmp_path, RESUMING)
    assert found.verdict is Verdict.RESUMED, found
    assert "continued at step" in found.saw


@pytest.mark.parametrize(
    ("text", "run", "seconds", "saw"),
    [
        (
            "import time\nfor step in range(10**6):\n    time.sleep(0.01)\n",
            "python train.py",
            4.0,
            "no save was seen in",
        ),
        ("print('done')\n", "python train.py", SECONDS, "without a save in its loop"),
        ("", "while :; do sleep 1; done", 4.0, "no save was seen in"),
    ],
    ids=["no save", "no loop", "no Python"],
)
def test_what_does_not_save_is_not_seen(
    tmp_path: Path, text: str, run: str, seconds: float, saw: str
) -> None:
    found = seen(tmp_path, text, run, seconds=seconds)
    assert (found.verdict, saw in found.saw) == (Verdict.NOT_SEEN, True), found


def test_saves_that_the_next_machine_lacks_are_no_saves(tmp_path: Path) -> None:
    text = torch_script(WHOLE).replace('os.environ["SPOTCTL_CHECKPOINT_DIR"]', '"."')
    found = seen(tmp_path, text)
    assert found == Judgement(
        Verdict.RESTARTED,
        "saved state.pt.new in its folder, which the next machine lacks; keep it: "
        "checkpoint.keep names files and folders",
    )


def test_a_script_that_cannot_start_again_has_lost_its_work(tmp_path: Path) -> None:
    found = seen(tmp_path, torch_script("raise SystemExit('what is this?')"))
    assert found.verdict is Verdict.RESTARTED
    assert found.saw.endswith("failed with status 1: what is this?")


def test_a_command_that_fails_at_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadRequest,
        match=r"status 1: train\.py:1: ModuleNotFoundError: No module named 'missing_module'",
    ):
        seen(tmp_path, "import missing_module\n")


COMPILED = """
import os, pathlib

place = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"])
found = sorted(path.name for path in place.rglob("*"))
(place / "more").mkdir(parents=True)
raise SystemExit(f"{found}")
"""


@pytest.mark.parametrize("is_own", [True, False])
def test_what_was_compiled_here_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_own: bool
) -> None:
    caches = tmp_path / "cache" / "torch_extensions"
    for number, name in enumerate(["py310_cpu", "py311_cpu"]):
        (caches / name / f"extension{number}").mkdir(parents=True)
        (caches / name / f"extension{number}" / "lock").touch()
        os.utime(caches / name, (number, number))
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches.parent))
    if is_own:
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(caches / "py310_cpu"))
    with pytest.raises(
        BadRequest, match=r"status 1: \['extension0'\]" if is_own else r"status 1: \['extension1'\]"
    ):
        seen(tmp_path, COMPILED)
    assert not [*caches.rglob("more")]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_survives_the_end_of_the_trial(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(
        "import os, time\nif not os.fork():\n    os.setsid()\n    open('up', "
        "'w')\ntime.sleep(900)\n"
    )
    path = command(tmp_path, "python train.py")
    path.write_text(path.read_text() + f"checkpoint: {{path: {tmp_path / 'kept'}}}\n")
    code = (
        # A shell that runs the tests in the background has it ignored.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from pathlib import Path; from spotctl.files.job.reader import load;"
        "from spotctl.trials.rehearsal import rehearse; from spotctl.trials.starts import "
        "TrialTerms;"
        f"rehearse(load(Path({str(path)!r})), Path({str(tmp_path / 'cache')!r}), TrialTerms(900.0, "
        "()), print)"
    )
    (tmp_path / "tmp").mkdir()
    trial = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    )
    while not list((tmp_path / "tmp").glob("*/job-*/up")):
        assert trial.poll() is None
        time.sleep(0.05)
    trial.send_signal(number)
    trial.wait()
    while running(str(tmp_path)) or any((tmp_path / "tmp").iterdir()):
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("seconds", "spent", "verdict"),
    [
        (1.0, 0.5, Verdict.RESUMED),
        (4.0, 2.0, Verdict.RESTARTED),
        (4.0, 0.5, Verdict.NOT_SEEN),
        (1.0, 2.0, Verdict.NOT_SEEN),
    ],
)
def test_work_done_again_in_silence_is_seen_by_both_clocks_or_is_a_doubt(
    seconds: float, spent: float, verdict: Verdict
) -> None:
    """A script without steps saves each second, and has used half a second of a processor."""

    def save(step: int, at: float, used: float) -> WorkMark:
        return WorkMark("save", at, "state.json", {"step": ("bound", step)}, (), used)

    first = [WorkMark("start", 0.0)]
    first += [save(step, 1.0 + step, 0.5 + step / 2) for step in range(4)]
    after = [WorkMark("start", 100.0), WorkMark("load", 101.0, "state.json", spent=0.5)]
    after += [save(4, 101.0 + seconds, 0.5 + spent)]
    assert judged(first, first, 4.5, after).verdict is verdict


def test_a_save_that_lacks_the_file_that_is_read_has_the_state_of_the_save_before() -> None:
    """The script saves its model, and the loop then itself: killed between the two, the next start
    goes on with the epoch whose model alone was kept."""

    def save(path: str, epoch: int, at: float) -> WorkMark:
        return WorkMark("save", at, path, {"epoch": ("for", epoch)})

    def life(*epochs: int) -> list[WorkMark]:
        marks = []
        for epoch in epochs:
            marks += [save("model.pt", epoch, epoch + 0.5)]
            marks += [save(f".new-loop-{epoch}.pickle", epoch, epoch + 0.9)]
            marks += [WorkMark("done", epoch + 0.92, f"loop-{epoch}.pickle")]
        return marks

    first = [WorkMark("start", 0.0), *life(1, 2, 3)]

    def verdict(read: str, goes_on_at: int, kept_at: float) -> Verdict:
        after = [WorkMark("start", 100.0), WorkMark("load", 101.0, read)]
        after += [save("model.pt", goes_on_at, 101.5)]
        return judged(first, first, kept_at, after).verdict

    assert verdict("loop-2.pickle", 3, 3.7) is Verdict.RESUMED
    # Of what is saved whole, nothing may be repeated, nor of a save that is read itself.
    assert verdict("loop-2.pickle", 3, 3.95) is Verdict.RESTARTED
    assert verdict("loop-2.pickle", 2, 3.7) is Verdict.RESTARTED
    assert verdict("model.pt", 3, 3.7) is Verdict.RESTARTED


def test_a_save_of_which_a_part_came_after_the_copy_has_the_state_of_the_save_before() -> None:
    """The script reads both of its files, and was killed while it wrote the second."""

    def save(path: str, epoch: int, at: float) -> WorkMark:
        return WorkMark("save", at, path, {"epoch": ("for", epoch)})

    first = [WorkMark("start", 0.0)]
    for epoch in (1, 2, 3):
        first += [save("stats.pickle", epoch, epoch + 0.5), save("model.pt", epoch, epoch + 0.9)]

    def verdict(goes_on_at: int, kept_at: float) -> Verdict:
        after = [WorkMark("start", 100.0)]
        after += [WorkMark("load", 101.0, path) for path in ("stats.pickle", "model.pt")]
        return judged(first, first, kept_at, [*after, save("x", goes_on_at, 102.0)]).verdict

    assert verdict(3, 3.7) is Verdict.RESUMED
    assert verdict(2, 3.7) is Verdict.RESTARTED
    assert verdict(3, 3.95) is Verdict.RESTARTED

    # So it was in the first save of a start that itself goes on with the second epoch.
    kept = [WorkMark("start", 50.0), WorkMark("load", 50.1, "model.pt")]
    kept += [save("stats.pickle", 2, 52.5), save("model.pt", 2, 52.9), WorkMark("cut", 52.9)]

    def at_once(goes_on_at: int) -> Verdict:
        after = [WorkMark("start", 100.0), WorkMark("load", 101.0, "stats.pickle")]
        after += [WorkMark("load", 101.1, "model.pt"), save("x", goes_on_at, 102.0)]
        return judged(first, kept, 52.6, after).verdict

    assert at_once(2) is Verdict.RESUMED
    assert at_once(1) is not Verdict.RESUMED


def test_a_save_that_gets_its_name_after_it_is_written_is_whole() -> None:
    def save(epoch: int) -> list[WorkMark]:
        written = WorkMark("save", epoch + 0.5, "last.pt.part", {"epoch": ("for", epoch)})
        return [written, WorkMark("done", epoch + 0.6, "last.pt")]

    first = [WorkMark("start", 0.0), *save(1), *save(2), *save(3)]

    def verdict(goes_on_at: int) -> Verdict:
        after = [WorkMark("start", 100.0), WorkMark("load", 101.0, "last.pt")]
        after += [WorkMark("save", 102.0, "last.pt.part", {"epoch": ("for", goes_on_at)})]
        return judged(first, first, 3.5, after).verdict

    assert verdict(4) is Verdict.RESUMED
    assert verdict(3) is Verdict.RESTARTED
