"""The handshake by itself: who is let in, and that nothing recorded or thrown back passes for knowing the secret."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from agileml.errors import BadArgument
from agileml.transport.errors import BadSecret
from agileml.transport.handshake import Failure, Handshake, Identity, Reason, check_secret

SECRET, OTHER = b"0123456789abcdef", b"0123456789abcdeF"
A, B = Identity("a", "server", "v1"), Identity("b", "worker", "v1")


class Side:
    """A handshake that is fed a stream, as a link does it."""

    def __init__(self, handshake: Handshake) -> None:
        self.handshake = handshake
        self.failure: Failure | None = None
        self._held = b""

    def hear(self, data: bytes) -> bytes:
        self._held += data
        said = b""
        while self.failure is None and not self.handshake.done and len(self._held) >= self.handshake.wanted:
            message, self._held = self._held[: self.handshake.wanted], self._held[self.handshake.wanted :]
            try:
                said += self.handshake.receive(message)
            except Failure as failure:
                self.failure = failure
                said += failure.refusal
        return said


def initiator(me: Identity = A, secret: bytes = SECRET, expected: str = "b") -> Side:
    return Side(Handshake(me, secret, expected=expected))


def acceptor(
    me: Identity = B, secret: bytes = SECRET, refusal: Callable[[Identity], Reason | None] = lambda _: None
) -> Side:
    return Side(Handshake(me, secret, refusal=refusal))


def converse(first: Side, second: Side) -> list[bytes]:
    """Lets two talk until nobody has anything to say; what was said."""
    said = [first.handshake.opening()]
    while said[-1]:
        said.append((second if len(said) % 2 else first).hear(said[-1]))
    return said[:-1]


def reason(side: Side) -> Reason | None:
    return None if side.failure is None else side.failure.reason


def test_two_processes_of_a_job_authenticate_each_other() -> None:
    one, two = initiator(), acceptor()
    converse(one, two)
    assert one.handshake.done
    assert two.handshake.done
    assert (one.handshake.peer, two.handshake.peer) == (B, A)


@pytest.mark.parametrize(
    ("one", "two", "why"),
    [
        (initiator(secret=OTHER), acceptor(), Reason.SECRET),
        (initiator(), acceptor(secret=OTHER), Reason.SECRET),
        (initiator(), acceptor(Identity("b", "worker", "v2")), Reason.VERSION),
        (initiator(expected="c"), acceptor(), Reason.NAME),
        (initiator(Identity("b")), acceptor(), Reason.NAME),
        (initiator(), acceptor(refusal=lambda peer: Reason.CROSSING if peer == A else None), Reason.CROSSING),
        (initiator(), acceptor(refusal=lambda peer: Reason.TAKEN if peer == A else None), Reason.TAKEN),
        (initiator(), initiator(B, expected="a"), Reason.MALFORMED),
    ],
)
def test_both_sides_learn_why_a_handshake_failed(one: Side, two: Side, why: Reason) -> None:
    converse(one, two)
    assert reason(one) is why
    assert reason(two) is why
    assert not one.handshake.done
    assert not two.handshake.done


def test_another_version_is_refused_with_both_versions_on_both_sides() -> None:
    one, two = initiator(), acceptor(Identity("b", "worker", "v2"))
    converse(one, two)
    for side in (one, two):
        assert "'v1'" in str(side.failure)
        assert "'v2'" in str(side.failure)


def test_a_version_is_compared_only_after_the_secret() -> None:
    one, two = initiator(), acceptor(Identity("b", "worker", "v2"), OTHER)
    converse(one, two)
    assert reason(one) is Reason.SECRET


def test_a_replayed_handshake_is_refused() -> None:
    hello, challenge, proof, welcome = converse(initiator(), acceptor())
    fresh = acceptor()
    fresh.hear(hello)
    fresh.hear(proof)
    assert reason(fresh) is Reason.SECRET
    fresh = initiator()
    fresh.handshake.opening()
    fresh.hear(challenge + welcome)
    assert reason(fresh) is Reason.SECRET


def test_a_reflected_message_is_refused() -> None:
    """Someone without the secret answers each message with what the victim itself said, as either side."""
    hello, challenge, *_ = converse(initiator(), acceptor())
    victim = initiator()
    own = victim.handshake.opening()
    victim.hear(own)
    assert reason(victim) is Reason.MALFORMED
    # The attacker opens with a HELLO and has the acceptor's own HMAC come back as the PROOF.
    victim = acceptor()
    answer = victim.hear(hello)
    proof = hello[:4] + bytes([3]) + (32).to_bytes(2, "little") + answer[-32:]
    victim.hear(proof)
    assert reason(victim) is Reason.SECRET
    # Two handshakes with the same process, each answered out of the other.
    first, second = initiator(), acceptor(A)
    challenge = second.hear(Side(Handshake(B, OTHER, expected="a")).handshake.opening())
    first.handshake.opening()
    first.hear(challenge)
    assert reason(first) is Reason.SECRET


def test_a_man_in_the_middle_cannot_change_a_name() -> None:
    one, two = initiator(), acceptor()
    hello = one.handshake.opening().replace(b"\x01a\x06server", b"\x01c\x06server")
    one.hear(two.hear(hello))
    assert reason(one) is Reason.SECRET


@pytest.mark.parametrize("step", [2, 3, 4, 5, 0, 77])
def test_a_message_out_of_order_is_refused(step: int) -> None:
    side = acceptor()
    side.hear(b"AgH1" + bytes([step]) + (0).to_bytes(2, "little"))
    assert reason(side) is Reason.MALFORMED


def test_a_welcome_without_a_challenge_is_refused() -> None:
    side = initiator()
    side.hear(b"AgH1" + bytes([4]) + (0).to_bytes(2, "little"))
    assert reason(side) is Reason.MALFORMED
    assert not side.handshake.done


def test_wanted_is_never_more_than_one_message() -> None:
    side = acceptor()
    side.hear(b"AgH1" + bytes([1]) + (0xFFFF).to_bytes(2, "little"))
    assert reason(side) is Reason.MALFORMED


@given(st.integers(0, 3), st.data())
def test_a_changed_byte_is_always_noticed(which: int, data: st.DataObject) -> None:
    """Whatever byte of the conversation is changed: both are let in only if both saw the same identities."""
    one, two = initiator(), acceptor()
    said, speaker = one.handshake.opening(), 0
    while said:
        if speaker == which:
            position = data.draw(st.integers(0, len(said) - 1))
            said = said[:position] + bytes([said[position] ^ data.draw(st.integers(1, 255))]) + said[position + 1 :]
        said = (two, one)[speaker % 2].hear(said)
        speaker += 1
    assert not one.handshake.done
    assert two.handshake.done == (which == 3)


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_incomplete(garbage: bytes) -> None:
    for side in (initiator(), acceptor()):
        side.hear(garbage)
        side.hear(b"AgH1" + bytes([1]) + len(garbage).to_bytes(2, "little") + garbage)
        assert not side.handshake.done


@pytest.mark.parametrize("name", ["", "a b", "a\n", "ä", "x" * 129, "a'"])
def test_names_that_could_forge_log_lines_are_refused(name: str) -> None:
    with pytest.raises(BadArgument):
        Identity(name)


def test_a_short_secret_is_refused() -> None:
    check_secret(SECRET)
    with pytest.raises(BadSecret, match="has 15 bytes: use at least 16"):
        check_secret(SECRET[1:])
