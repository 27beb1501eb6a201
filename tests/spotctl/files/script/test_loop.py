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


def test_a_script_without_a_loop_is_told_what_to_do() -> None:
    Path("train.py").write_text(
        "import joblib, sklearn.svm\n\nm = sklearn.svm.SVC().fit(x, y)\njoblib.dump(m, 'm')\n"
    )
    ended = spotctl("init", "train.py")
    assert ended.out.startswith("train.py does not resume, as far as reading it shows: each")
    assert "spotctl init train.py --try --force runs it here, and sees whether" in ended.out
    assert job().program.run == f"python train.py && cp -r m {RESULT}"  # type: ignore[union-attr]
