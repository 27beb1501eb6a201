"""Without the extra that an integration needs, its import names the command that installs it."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize("name", ["lightning", "torch", "transformers"])
def test_the_import_names_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"spotctl.integrations.{name}", raising=False)
    with pytest.raises(
        ImportError,
        match=rf"^spotctl.integrations.{name} needs .*: pip install 'spotctl\[{name}\]'",
    ):
        importlib.import_module(f"spotctl.integrations.{name}")
