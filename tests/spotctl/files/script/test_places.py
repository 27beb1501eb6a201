"""Where a script saves and loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.script.reading import applied, outside_paths
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.script.test_reading import CONSTANT, RESULT, job, script

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]


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
        (SWITCHED, f"{{ cp -r net.pt {RESULT} || true; }}"),
        (
            SWITCHED.replace("if args.save_model", "if __name__ == '__main__'"),
            f"cp -r net.pt {RESULT}",
        ),
    ],
    ids=["condition", "always"],
)
def test_a_result_that_is_saved_under_a_condition_may_be_missing(text: str, command: str) -> None:
    Path("train.py").write_text(text)
    assert spotctl("init", "train.py").code == 0
    assert job().program.run == f"python train.py && {command}"  # type: ignore[union-attr]


def test_a_load_for_another_value_of_a_constant_does_not_count() -> None:
    assert not script(CONSTANT).loads
    found = script(CONSTANT.replace('"scratch"', '"resume"'))
    assert (found.resumes, found.keep) == (True, ("out/",))
    [change] = script(CONSTANT).changes
    there = 'os.path.exists("out/ckpt.pt")'
    assert change.text == f'init_from = "resume" if {there} else "scratch"'
    assert script(applied(CONSTANT, [change])).loads


def test_paths_outside_of_the_copy_are_listed() -> None:
    text = (
        "a, b = '/mnt/x/y.bin', f'{a}/z'\nc, d, e = '~/models/m', '../up', '/dev/null'\nf, g = "
        "'in/side', '/'\n"
    )
    assert outside_paths(script(text).source) == ["../up", "/mnt/x/y.bin", "~/models/m"]
