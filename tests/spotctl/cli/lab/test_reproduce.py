"""What `lab reproduce` refuses."""

from __future__ import annotations

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl


@pytest.mark.parametrize("words", [("gavel",), ("pricing-tables", "--data", "nowhere")])
def test_what_it_refuses(words: tuple[str, ...], approved: Approved) -> None:
    approved(spotctl("lab", "reproduce", *words))
