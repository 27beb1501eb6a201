"""The approved texts belong to tests that exist, and a text that is not the approved one fails."""

from __future__ import annotations

import pytest

from tests.samples import is_defined
from tests.spotctl.approvals import APPROVE, FOLDER, Approved, approved_texts
from tests.spotctl.command_line import spotctl


def test_every_approved_text_has_its_test() -> None:
    names = [name for path in sorted(FOLDER.glob("*.txt")) for name in approved_texts(path)]
    functions = {name.partition(" (")[0].partition("[")[0] for name in names}
    assert not [name for name in sorted(functions) if not is_defined(f"tests/spotctl/{name}")]


def test_another_text_or_exit_code_and_an_unknown_test_fail(
    approved: Approved, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = spotctl("prices", "shw")
    approved(refused)
    monkeypatch.delenv(APPROVE, raising=False)
    with pytest.raises(AssertionError, match=r"prices\.txt has another text"):
        approved(refused)
