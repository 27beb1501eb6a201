"""Copies of a caller's objects for the nodes of a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agileml.errors import BadTrainer
from agileml.training import source_of
from tests.agileml.toys import Decades


def test_a_copied_trainer_is_loaded_by_the_python_that_copied_it() -> None:
    assert isinstance(source_of(Decades([4], 2)).load(), Decades)


def test_another_python_refuses_it_with_the_cure() -> None:
    source = source_of(Decades([4], 2))
    elsewhere = replace(source, arguments={**source.arguments, "python": "3.9"})
    with pytest.raises(
        BadTrainer, match=r"copied by Python 3\.9, and this node runs 3\..*TrainerSource\('module:Class'"
    ):
        elsewhere.load()
