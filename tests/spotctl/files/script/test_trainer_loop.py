"""Lines of a training that cannot be carried."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from spotctl.files.script.reading import read_script
from spotctl.files.script.trainer_loop import training_of
from tests.spotctl.trials.test_trainer import copied

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]

REFUSED: Mapping[str, tuple[str, ...]] = {
    "adversarial": ("18: a second loss",),
    "recurrent": (
        "12: the loss depends on hidden, which is carried",
        "14: the loss depends on step, which counts steps",
    ),
    "adjusted": (
        "15: .*for group in optimizer.param_groups",
        "20: .*clip_grad_value_",
        "22: .*for old, new in zip",
        "25: .*if loss.item",
    ),
    "scaled": ("8: a GradScaler leaves steps out",),
    "drawn": ("14: the loop does not take its batches from a DataLoader",),
    "evaluating": ("16: the network stays in the mode for evaluation",),
}
"""By script: the lines that cannot be carried."""


@pytest.mark.parametrize("name", REFUSED)
def test_each_line_that_cannot_be_carried_is_named(name: str) -> None:
    path = copied(name)
    uncarried = [
        f"{line}: {reason}" for line, reason in training_of(read_script(path, Path.cwd())).uncarried
    ]
    assert len(uncarried) == len(REFUSED[name])
    for said, expected in zip(uncarried, REFUSED[name], strict=True):
        assert re.match(expected, said), said


CHANGED: Mapping[str, tuple[str, tuple[str, str], str]] = {
    "a schedule by hand": (
        "digits",
        ("        scheduler.step()\n", "        optimizer.param_groups[0]['lr'] *= 0.7\n"),
        r"102: not known .*param_groups\[0\]",
    ),
    "a step that some batches leave out": (
        "features",
        ("        loss.backward()\n", "        if loss > 0.1:\n            loss.backward()\n"),
        "18: backward.. is called .*only in some cases",
    ),
    "an end that the loss decides": (
        "digits",
        (
            "        scheduler.step()\n",
            "        scheduler.step()\n        if epoch > loss:\n            break\n",
        ),
        "103: ends the training by what it has computed: if epoch > loss",
    ),
    "a batch that is left out": (
        "features",
        (
            "        optimizer.zero_grad()\n",
            "        if inputs.sum() > 3:\n            continue\n        optimizer.zero_grad()\n",
        ),
        "15: not known .*if inputs.sum",
    ),
    "weights that are changed by hand": (
        "features",
        (
            "        scheduler.step()",
            "        scheduler.step()\n        model[0].weight.data.clamp_(-1, 1)",
        ),
        r"22: not known .*model\[0\].weight.data.clamp_",
    ),
    "gradients that are changed by hand": (
        "features",
        (
            "        optimizer.step()",
            "        model[0].weight.grad.mul_(0.5)\n        optimizer.step()",
        ),
        r"20: not known .*weight.grad.mul_",
    ),
    "a part of the network that stays in the mode for evaluation": (
        "features",
        (
            "        optimizer.zero_grad()\n",
            "        model[0].eval()\n        optimizer.zero_grad()\n",
        ),
        r"15: not known .*model\[0\].eval",
    ),
    "gradients that are never set to zero": (
        "features",
        ("        optimizer.zero_grad()\n", ""),
        "14: gradients are never set to zero",
    ),
    "a norm that changes": (
        "features",
        ("model.parameters(), 1.0)", "model.parameters(), 1.0 / (epoch + 1))"),
        "19: the largest norm changes",
    ),
    "a network that the loss uses from outside": (
        "features",
        (
            "loss = criterion(outputs, targets)",
            "outputs.mul_(epoch)\n        loss = criterion(outputs, targets)",
        ),
        "17: the loss depends on epoch, which counts steps",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_line_that_changes_the_training_is_named(case: str) -> None:
    name, change, expected = CHANGED[case]
    path = copied(name, change)
    uncarried = [
        f"{line}: {reason}" for line, reason in training_of(read_script(path, Path.cwd())).uncarried
    ]
    assert any(re.match(expected, said) for said in uncarried), uncarried
