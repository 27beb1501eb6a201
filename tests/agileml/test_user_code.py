"""Frames of the user's code in what a crashed process prints."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

import pytest

from agileml.errors import BadArgument, BadTrainer, TrainerFailed
from agileml.params.commit import Declarations, calling
from agileml.runtime import node_process
from agileml.training import parse_nodes, source_of
from agileml.user_code import (
    condensed,
    crash_site,
    described,
    is_users,
    raised_at,
    users_traceback,
    whereabouts,
)
from tests.agileml.toys import Decades, Scripted

CRASH = f"""started
Fatal Python error: Aborted

Thread 0x00007f (most recent call first):
  File "{threading.__file__}", line 327 in wait
  File "{node_process.__file__}", line 80 in _run
  File "<frozen runpy>", line 88 in _run_code

Thread 0x00008f (most recent call first):
  File "{threading.__file__}", line 300 in acquire
  File "/home/me/my trainer.py", line 12 in step
  File "/home/me/other.py", line 3 in call

Extension modules: numpy._core._multiarray_umath (total: 1)
"""


def test_the_innermost_frame_of_the_users_code_is_found() -> None:
    assert (
        crash_site(CRASH)
        == "Fatal Python error: Aborted; it was in /home/me/my trainer.py, line 12, in step"
    )


def test_output_without_a_crash_has_no_site() -> None:
    assert crash_site('ordinary output\n  File "/home/me/x.py", line 1 in step\n') == ""
    assert crash_site("Fatal Python error: Aborted\n\nno stacks") == ""


def test_files_of_the_package_and_of_python_are_not_the_users() -> None:
    assert is_users(__file__)
    assert not is_users(node_process.__file__)
    assert not is_users(threading.__file__)


def test_of_a_crash_the_users_frames_are_shown() -> None:
    assert condensed(CRASH) == (
        "started\nFatal Python error: Aborted\n"
        '  File "/home/me/my trainer.py", line 12 in step\n  File "/home/me/other.py", line 3 in call\n'
    )
    assert condensed("no crash\n") == "no crash\n"


def fails() -> None:
    raise KeyError("x")


def wrapped() -> TrainerFailed:
    with pytest.raises(TrainerFailed) as caught, calling("here"):
        fails()
    return caught.value


def test_an_error_names_the_line_that_raised_it() -> None:
    line = fails.__code__.co_firstlineno + 1
    assert str(wrapped()) == f"here: KeyError: 'x' ({__file__}, line {line}, in fails)"
    assert raised_at(KeyError("never raised")) == ""


def test_a_violated_contract_names_the_line_that_violated_it() -> None:
    def step() -> None:
        Declarations.of(Negative())

    class Negative(Scripted):
        batch = -1

    with (
        pytest.raises(BadTrainer, match=rf"batch is -1; .* \({__file__}, line \d+, in step\)$"),
        calling("here"),
    ):
        step()


def test_a_traceback_begins_with_the_users_code() -> None:
    text = users_traceback(wrapped())
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("KeyError: 'x'\n")
    assert "in fails" in text
    assert "declarations.py" not in text
    with pytest.raises(BadArgument) as caught:
        parse_nodes_here()
    assert "in parse_nodes_here" in users_traceback(caught.value)
    assert users_traceback(KeyError("never raised")) == ""


def parse_nodes_here() -> None:
    parse_nodes("x")


def test_where_a_thread_is() -> None:
    assert "in test_where_a_thread_is" in whereabouts(sys._getframe())
    assert whereabouts(None) == ""


def test_an_error_without_text_is_its_type() -> None:
    assert described(MemoryError()) == "MemoryError"


def test_a_copied_trainer_is_loaded_by_the_python_that_copied_it() -> None:
    assert isinstance(source_of(Decades([4], 2)).load(), Decades)


def test_another_python_refuses_it_with_the_cure() -> None:
    source = source_of(Decades([4], 2))
    elsewhere = replace(source, arguments={**source.arguments, "python": "3.9"})
    with pytest.raises(
        BadTrainer,
        match=r"copied by Python 3\.9, and this node runs 3\..*TrainerSource\('module:Class'",
    ):
        elsewhere.load()
