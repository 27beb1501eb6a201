"""Names that statements read, set and change."""

from __future__ import annotations

import ast

import pytest

from spotctl.files.script.source import (
    has_backward,
    names_changed,
    names_read,
    names_set,
    own_nodes,
    unwrapped,
)


def statement(text: str) -> ast.stmt:
    (only,) = ast.parse(text).body
    return only


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a, (b, c) = value", {"a", "b", "c"}),
        ("model.layers[0].bias = zero", {"model"}),
        ("import numpy as np, torch.nn", {"np", "torch"}),
        ("def step(batch): total = 1", {"step"}),
        ("losses = [loss for loss in given]", {"losses"}),
        ("for i in rows:\n    seen[i] = 1", {"i", "seen"}),
    ],
)
def test_a_name_is_set_by_a_value_and_by_a_part_of_it(text: str, names: set[str]) -> None:
    assert names_set([statement(text)]) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("total += loss", {"total", "loss"}),
        ("best = min(x.loss for x in seen)", {"min", "seen"}),
        ("def step(batch):\n    out = model(batch)\n    return out + bias", {"model", "bias"}),
    ],
)
def test_a_definition_reads_what_it_does_not_set_itself(text: str, names: set[str]) -> None:
    assert names_read(statement(text)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("optimizer.step()", {"optimizer"}),
        ("loss = model(batch)", set()),
        ("state['epoch'] = epoch", {"state"}),
        ("def step(): optimizer.step()", set()),
    ],
)
def test_a_call_on_its_own_line_may_change_its_object(text: str, names: set[str]) -> None:
    assert names_changed(statement(text)) >= names
    assert not names or names_changed(statement(text))
    assert "loss" not in names_changed(statement(text))


def test_a_loop_in_a_statement_has_its_own_breaks() -> None:
    outer = statement("if done:\n    break\nelse:\n    for _ in rows:\n        break")
    assert sum(isinstance(node, ast.Break) for node in own_nodes(outer)) == 1


def test_a_definition_that_goes_backward_does_not_do_so_yet() -> None:
    assert has_backward(statement("loss.backward()"))
    assert not has_backward(statement("def step(): loss.backward()"))


def test_a_loader_is_found_in_what_counts_and_shows_it() -> None:
    wrapped = statement("enumerate(tqdm(loader), 1)")
    assert isinstance(wrapped, ast.Expr)
    assert ast.unparse(unwrapped(wrapped.value)) == "loader"
