"""The network model: cards handle one message at a time, and links keep their order."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from hypothesis import given, strategies as st

from agileml.engines.sim.network import Network, Wire

SECOND = 1000
"""Bytes that a card sends or takes in within a second."""


def wire(jitter: float = 0.0, latency: float = 0.5) -> Wire:
    network = Network(
        SECOND, latency, jitter, weigh=lambda message: 4 * SECOND if message == "long" else SECOND
    )
    return Wire(network, np.random.Generator(np.random.PCG64(0)))


def played(
    network: Wire, sent: Sequence[tuple[float, str, str, object]]
) -> list[tuple[float, int]]:
    """When each message is there, as the engine has it: first bytes in the order in which they
    come.
    """
    coming: list[tuple[float, int, str, float]] = []
    for number, (now, sender, receiver, message) in enumerate(sent):
        at, seconds = network.reached(sender, receiver, message, 0, now)
        heapq.heappush(coming, (at, number, receiver, seconds))
    there = []
    while coming:
        at, number, receiver, seconds = heapq.heappop(coming)
        there.append((network.received(receiver, seconds, at) if seconds else at, number))
    return sorted(there)


def test_a_message_takes_its_latency_and_its_bytes() -> None:
    assert played(wire(), [(1.0, "a", "b", "short")]) == [(2.5, 0)]


def test_a_card_sends_one_message_after_the_other() -> None:
    assert played(wire(), [(0.0, "a", "b", "short"), (0.0, "a", "c", "short")]) == [
        (1.5, 0),
        (2.5, 1),
    ]


def test_a_card_receives_one_message_after_the_other() -> None:
    assert played(wire(), [(0.0, "a", "c", "short"), (0.0, "b", "c", "short")]) == [
        (1.5, 0),
        (2.5, 1),
    ]


def test_a_queued_message_does_not_delay_others_to_its_receiver() -> None:
    sent = [(0.0, "a", "b", "long"), (0.0, "a", "c", "short"), (1.0, "d", "c", "short")]
    assert played(wire(), sent) == [(2.5, 2), (4.5, 0), (5.5, 1)]


def test_messages_to_oneself_take_no_bandwidth() -> None:
    assert played(wire(), [(0.0, "a", "a", "long")]) == [(0.5, 0)]


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.sampled_from("abc"), st.sampled_from("abc")), max_size=20
    )
)
def test_links_keep_their_order_despite_jitter(sends: list[tuple[float, str, str]]) -> None:
    sent = [(now, sender, receiver, "short") for now, sender, receiver in sorted(sends)]
    there = played(wire(jitter=2.0), sent)
    for sender in "abc":
        for receiver in "abc":
            numbers = [number for _, number in there if sent[number][1:3] == (sender, receiver)]
            assert numbers == sorted(numbers)
