"""Each message of the protocol can be sent, and somebody handles it."""

from __future__ import annotations

import dataclasses

import numpy as np

from agileml.core.controller import ROUTES
from agileml.params.deltas import RowDelta
from agileml.protocol import messages
from agileml.roles import node
from agileml.roles.node import NodeState
from agileml.transport.codec import Codec
from tests.agileml.test_state_machines import MESSAGES
from tests.agileml.transport.test_codec import same, through


def registered() -> list[type]:
    return [
        each
        for each in vars(messages).values()
        if dataclasses.is_dataclass(each) and isinstance(each, type)
    ]


def test_all_messages_of_the_protocol_are_supported() -> None:
    codec = Codec(registered())
    rows = RowDelta(np.arange(3, dtype=np.int32), np.ones((3, 2), np.float32))
    dense = RowDelta(None, np.ones(5))
    delta = [rows, None, dense]
    push = messages.Push(
        1,
        "w",
        7,
        ((0, 0, 4), (1, 2, 3)),
        (messages.PartitionUpdate(2, (messages.UpdateEntry(0, 1, delta),)),),
        8,
    )
    kind, _, arrays = codec.encode(push)
    assert kind == "Push"
    assert len(arrays) == 3
    assert same(through(push, codec), push)


def test_every_message_has_a_receiver() -> None:
    to_nodes, to_controller = set(node.TRANSITIONS[NodeState.ACTIVE]), set(ROUTES)
    assert to_nodes | (to_controller & MESSAGES) == MESSAGES
    assert not to_nodes & to_controller
