"""The loop of a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.command_line import spotctl
from tests.spotctl.files.script.test_reading import RESULT, job, script

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]


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


def test_what_only_some_runs_have_is_named_under_its_condition() -> None:
    text = """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--adam", action="store_true")
given = parser.parse_args()
net = torch.nn.Linear(1, 1)
if given.adam:
    optimizer = torch.optim.Adam(net.parameters())
if given.adam:
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
else:
    schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(net.parameters()), 1)
for epoch in range(9):
    net(torch.ones(1)).backward()
    if given.adam:
        optimizer.step()
    schedule.step()
"""
    head = "for epoch in resuming(range(9), net, *([optimizer] if (given.adam) else []), schedule):"
    assert [line.text.strip() for line in script(text).changes][1:] == [head]


def test_a_script_without_a_loop_is_told_what_to_do() -> None:
    Path("train.py").write_text(
        "import joblib, sklearn.svm\n\nm = sklearn.svm.SVC().fit(x, y)\njoblib.dump(m, 'm')\n"
    )
    ended = spotctl("init", "train.py")
    assert ended.out.startswith("train.py does not resume, as far as reading it shows: each")
    assert "spotctl init train.py --try --force runs it here, and sees whether" in ended.out
    assert job().program.run == f"python train.py && cp -r m {RESULT}"  # type: ignore[union-attr]
