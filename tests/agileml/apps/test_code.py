"""The copy of a trainer's module that a job sends along."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agileml.apps import code
from agileml.apps.registry import TrainerSource
from tests.agileml.apps.test_registry import written


def test_of_installed_packages_only_the_module_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "one")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(code, "_installed", lambda: {folder})
    first = TrainerSource("parts.steps:A").code()
    (folder / "parts" / "losses.py").write_text("changed")
    assert TrainerSource("parts.steps:A").code() == first
    (folder / "parts" / "steps.py").write_text("changed")
    assert TrainerSource("parts.steps:A").code() != first


def test_a_trainers_module_is_found_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), *sys.path])
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "some_trainer.py").write_text("value = 1\n")
    source = TrainerSource("some_trainer:value")
    files, code = source.files(), source.code()
    assert list(files) == ["some_trainer.py"]
    sys.path.pop(0)
    assert source.code() != code
    moved = source.unpack(files, tmp_path / "there")
    assert (moved.target, moved.code()) == (source.target, code)
