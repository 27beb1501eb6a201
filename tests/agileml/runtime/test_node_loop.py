"""A node whose user code keeps it from answering."""

from __future__ import annotations

import pytest

from agileml.protocol.actions import CONTROLLER
from agileml.runtime.node_loop import tells_of_a_broken_link
from agileml.transport import Lost, Rejected


@pytest.mark.parametrize(
    ("event", "broken"),
    [
        (Lost("t1", "connection reset"), True),
        (Rejected("t1", "host:7", "connection refused"), True),
        (Rejected("t1", "host:7", "no handshake within 5 s", no_answer=True), False),
        (Lost(CONTROLLER, "connection reset"), False),
    ],
)
def test_a_node_whose_user_code_keeps_it_from_answering_is_not_reported(
    event: Lost | Rejected, broken: bool
) -> None:
    assert tells_of_a_broken_link(event) is broken
