"""Output of a payload, with its times."""

from __future__ import annotations

import base64
import time

from spotctl.agent.link.output import parse_times
from tests.spotctl.agent.agents import python
from tests.spotctl.agent.conftest import Started


def test_output_has_times(started: Started) -> None:
    before = time.time()
    agent = started(python("print('first'); print('second')"))
    assert agent.result() == 0
    # Once a caller has seen output, its time is noted, whatever the pace of the notes.
    assert base64.b64decode(agent.call("output", after=0)["output"]) == b"first\nsecond\n"
    times = list(parse_times(base64.b64decode(agent.call("output_times", after=0)["times"])))
    assert times[-1][0] == len("first\nsecond\n")
    assert all(before <= at / 1e6 <= time.time() for _, at in times)


def test_torn_lines_of_times_are_left_out() -> None:
    assert list(parse_times(b"12 34\n1 2 3\nx 4\n56 78")) == [(12, 34)]


def test_output_is_read_in_parts_from_an_offset(started: Started) -> None:
    agent = started(python("import sys; sys.stdout.write('a' * 300_000 + 'end')"))
    agent.result()
    first = base64.b64decode(agent.call("output", after=0)["output"])
    rest = base64.b64decode(agent.call("output", after=len(first))["output"])
    assert first + rest == b"a" * 300_000 + b"end"
    assert 0 < len(first) < 300_000
    assert agent.call("output", after=300_003) == {"output": ""}
