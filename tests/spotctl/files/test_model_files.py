"""Models that are saved."""

from __future__ import annotations

import pytest

from agileml.errors import AgileMLError
from agileml.job import Counters
from spotctl.files.model_files import check_nothing_lost


def test_lost_updates_are_never_passed_over() -> None:
    check_nothing_lost(Counters(10, 10, 0, 0))
    for counters in (Counters(10, 9, 1, 0), Counters(10, 11, 0, 1)):
        with pytest.raises(AgileMLError, match="do not use this model"):
            check_nothing_lost(counters)
