"""How processes ended, for people."""

from __future__ import annotations

import signal

import pytest

from agileml.engines.base import Gone


@pytest.mark.parametrize(
    ("gone", "how"),
    [
        (Gone("n1"), "was evicted"),
        (Gone("n1", 3), "ended with status 3"),
        (Gone("n1", 3, "no such file"), "ended with status 3: no such file"),
        (Gone("n1", -signal.SIGTERM), "was ended by signal 15"),
        (Gone("n1", -signal.SIGABRT, "x"), "(SIGABRT: the node hung, or code in C gave up): x"),
    ],
)
def test_the_end_of_a_process_is_said_with_its_cause(gone: Gone, how: str) -> None:
    assert gone.how.endswith(how)
