"""The handshake by itself: who is let in, and what someone without the job's secret learns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from agileml.errors import BadArgument, BadSecret
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
        while (
            self.failure is None
            and not self.handshake.done
            and len(self._held) >= self.handshake.wanted
        ):
            message, self._held = (
                self._held[: self.handshake.wanted],
                self._held[self.handshake.wanted :],
            )
            try:
                said += self.handshake.receive(message)
            except Failure as failure:
                self.failure = failure
                said += failure.refusal
        return said


def initiator(me: Identity = A, secret: bytes = SECRET, expected: str = "b") -> Side:
    return Side(Handshake(me, secret, expected=expected))


def acceptor(
    me: Identity = B,
    secret: bytes = SECRET,
    refusal: Callable[[Identity], Reason | None] = lambda _: None,
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
        (
            initiator(),
            acceptor(refusal=lambda peer: Reason.CROSSING if peer == A else None),
            Reason.CROSSING,
        ),
        (
            initiator(),
            acceptor(refusal=lambda peer: Reason.TAKEN if peer == A else None),
            Reason.TAKEN,
        ),
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


def test_a_stranger_learns_nothing_that_the_secret_is_needed_for() -> None:
    """It is refused before the acceptor has shown its own key or name."""
    stranger, victim = initiator(secret=OTHER), acceptor()
    answer = victim.hear(stranger.handshake.opening())
    assert reason(victim) is Reason.SECRET
    assert b"worker" not in answer
    assert len(answer) == 8


def test_an_initiators_key_does_not_answer() -> None:
    """Someone without the secret is called, and answers with what it has heard, as either side."""
    victim = initiator()
    own = victim.handshake.opening()
    victim.hear(own)
    assert reason(victim) is Reason.MALFORMED
    victim = initiator()
    own = victim.handshake.opening()
    victim.hear(own[:4] + bytes([2]) + own[5:].replace(b"a\nserver", b"b\nworker"))
    assert reason(victim) is Reason.SECRET


@pytest.mark.parametrize("step", [2, 3, 4, 5, 0, 77])
def test_a_message_out_of_order_is_refused(step: int) -> None:
    side = acceptor()
    side.hear(b"AgH1" + bytes([step]) + (0).to_bytes(2, "little"))
    assert reason(side) is Reason.MALFORMED


def test_a_welcome_without_an_answer_is_refused() -> None:
    side = initiator()
    side.hear(b"AgH1" + bytes([4]) + (0).to_bytes(2, "little"))
    assert reason(side) is Reason.MALFORMED
    assert not side.handshake.done


def test_wanted_is_never_more_than_one_message() -> None:
    side = acceptor()
    side.hear(b"AgH1" + bytes([1]) + (0xFFFF).to_bytes(2, "little"))
    assert reason(side) is Reason.MALFORMED


@given(st.integers(0, 1), st.integers(0, 31), st.integers(1, 255))
def test_a_changed_key_is_refused(which: int, position: int, change: int) -> None:
    one, two = initiator(), acceptor()
    said = one.handshake.opening()
    if which:
        said = two.hear(said)
    changed = said[: 7 + position] + bytes([said[7 + position] ^ change]) + said[8 + position :]
    asked = one if which else two
    asked.hear(changed)
    assert reason(asked) is Reason.SECRET


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_incomplete(garbage: bytes) -> None:
    for side in (initiator(), acceptor()):
        side.hear(garbage)
        side.hear(b"AgH1" + bytes([1]) + len(garbage).to_bytes(2, "little") + garbage)
        assert not side.handshake.done


def test_a_process_of_before_is_told_that_its_version_differs() -> None:
    """Introductions were packed in another way; it does not try again."""
    packed = b"".join(
        bytes([len(text)]) + text for text in (b"t1", b"0123456789abcdef", b"0.0.9-abcd")
    )
    content = bytes(32) + packed
    side = acceptor()
    refusal = side.hear(b"AgH1" + bytes([1]) + len(content).to_bytes(2, "little") + content)
    assert reason(side) is Reason.VERSION
    assert refusal == b"AgH1" + bytes([5, 1, 0, Reason.VERSION])


@pytest.mark.parametrize("name", ["", "a b", "a\n", "ä", "x" * 129, "a'"])
def test_names_that_could_forge_log_lines_are_refused(name: str) -> None:
    with pytest.raises(BadArgument):
        Identity(name)


def test_a_short_secret_is_refused() -> None:
    check_secret(SECRET)
    with pytest.raises(BadSecret, match="has 15 bytes: use at least 16"):
        check_secret(SECRET[1:])
