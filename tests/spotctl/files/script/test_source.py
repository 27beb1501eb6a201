"""A script as a syntax tree: full names, scopes, and the values of a class's own attributes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from spotctl.files.script.source import read_source
from spotctl.home.errors import BadRequest

SCRIPT = """
import numpy as np
from torch import optim
from .local import helper

class Trainer:
    def __init__(self, rate):
        self.rate, self.steps = rate, 10
        self.steps = 20
        self.optimizer = optim.SGD(lr=self.rate)

    def save(self):
        Path("out").mkdir()
        np.save("out/a.npy", helper())
"""


def test_calls_have_the_full_names_of_what_was_imported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    source = read_source(tmp_path / "train.py")
    called = [source.called(call) for call in source.calls]
    assert called == ["torch.optim.SGD", "Path().mkdir", "Path", "numpy.save", "helper"]


def test_an_attribute_that_is_given_several_values_has_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    own = read_source(tmp_path / "train.py").own_values
    assert set(own) == {"rate", "steps", "optimizer"}
    assert own["steps"] is None
    assert isinstance(own["rate"], ast.Name)


def test_the_scope_of_a_call_is_its_function_and_above_it_is_the_class(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    source = read_source(tmp_path / "train.py")
    scope = source.scope(source.calls[-1])
    assert isinstance(scope, ast.FunctionDef)
    assert scope.name == "save"
    assert source.scope(source.tree.body[0]) is source.tree


@pytest.mark.parametrize("content", [None, "def broken(:"])
def test_what_is_no_script_is_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadRequest, match=r"train\.py"):
        read_source(path)
