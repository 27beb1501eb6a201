"""Handshakes that do not end, and links that are too many."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from agileml.transport import (
    Connected,
    Lost,
)
from tests.agileml.transport.links import Clock, Meeting
from tests.agileml.transport.test_hostile import descriptors, ended, member, said, stranger


def test_a_handshake_times_out(meeting: Meeting) -> None:
    clock = Clock()
    a = meeting.add("a", clock=clock)
    a.listen(meeting.address("a"))
    with stranger(meeting) as sock:
        sock.sendall(b"AgH1")
        for _ in range(5):
            meeting.turn()
        assert said(meeting) == []
        clock.passed += 5
        ended(meeting, sock)
    assert said(meeting) == ["no handshake within 5 s"]


def test_idle_handshakes_do_not_keep_others_out(watched: Meeting) -> None:
    with ExitStack() as stack:
        socks = [stack.enter_context(stranger(watched)) for _ in range(10)]
        watched.until(lambda: len(said(watched)) == 6)
        assert set(said(watched)) == {"dropped for a newer connection: 4 were in their handshake"}
        for sock in socks[:6]:
            ended(watched, sock)
        c = watched.add("c")
        c.connect("a", watched.address("a"))
        watched.first("c", Connected)


def test_the_number_of_links_is_limited(watched: Meeting) -> None:
    with ExitStack() as stack:
        socks = [stack.enter_context(member(watched, f"m{number}")) for number in range(5)]
        with stranger(watched) as sock:
            ended(watched, sock)
        assert said(watched) == ["the maximum of 6 links is open"]
        socks[0].close()
        watched.first("a", Lost)
        stack.enter_context(member(watched, "m9"))


@contextmanager
def descriptors_that_are_scarce(more: int) -> Iterator[None]:
    used = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_accepting_resumes_once_descriptors_are_available_again(meeting: Meeting) -> None:
    clock = Clock()
    a = meeting.add("a", clock=clock)
    a.listen(meeting.address("a"))
    with stranger(meeting) as one, stranger(meeting) as two:
        with descriptors_that_are_scarce(0):
            for _ in range(3):
                assert a.poll(0.01) == []
        clock.passed += 2
        for sock in (one, two):
            sock.sendall(b"x" * 50)
            ended(meeting, sock)
    assert len(said(meeting)) == 2
