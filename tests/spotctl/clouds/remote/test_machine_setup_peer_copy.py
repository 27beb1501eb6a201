"""Copies of archives: few from the launcher, the others from machine to machine."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spotctl.clouds.remote.machine_setup import (
    MAX_FETCHING,
    MAX_SENT,
    ArchiveServer,
    CopyOrigin,
    Spreading,
    origin_of,
)


@pytest.mark.parametrize(
    ("fetching", "sending", "failures", "origin"),
    [
        ({}, 0, 0, CopyOrigin.HERE),
        ({}, 1, 0, CopyOrigin.WAIT),
        ({"a": 0}, 0, 0, "a"),
        ({"a": 1, "b": 0}, 0, 0, "b"),
        ({"a": MAX_FETCHING, "b": MAX_FETCHING}, 0, 0, CopyOrigin.WAIT),
        ({}, 0, 1, CopyOrigin.HERE),
        ({"a": 0}, 0, 2, CopyOrigin.HERE),
        ({}, MAX_SENT, 2, CopyOrigin.WAIT),
    ],
)
def test_the_origin_of_the_next_copy(
    fetching: dict[str, int], sending: int, failures: int, origin: str | CopyOrigin
) -> None:
    assert origin_of(fetching, sending, failures) == origin


def spread(machines: int, fails: Callable[[ArchiveServer], bool] = lambda _: False) -> list[str]:
    """From where the machines got an archive, in their order of time."""
    spreading, origins = Spreading(), list[str]()

    def bring(name: str) -> None:
        done = False
        while not done:
            try:
                with spreading.turn("digest", lambda: None) as server:
                    if server is not None and fails(server):
                        raise ConnectionError
                    origins.append("here" if server is None else str(server.given["host"]))
                    spreading.add("digest", name, ArchiveServer({"host": name}, lambda: None))
            except ConnectionError:
                continue
            done = True

    threads = [threading.Thread(target=bring, args=(f"m{number}",)) for number in range(machines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return origins


def test_the_launcher_sends_one_copy_for_all_machines() -> None:
    origins = spread(22)
    assert len(origins) == 22
    assert origins.count("here") == 1


def test_machines_that_do_not_reach_each_other_all_get_it_from_the_launcher() -> None:
    assert spread(9, fails=lambda _: True) == ["here"] * 9


def test_a_machine_that_is_gone_is_not_asked_again() -> None:
    asked = list[str]()

    def fails(server: ArchiveServer) -> bool:
        asked.append(str(server.given["host"]))
        return len(asked) == 1

    assert len(spread(9, fails)) == 9
    assert asked.count(asked[0]) == 1


def test_servers_end_with_the_process_that_started_them() -> None:
    stopped, spreading = list[str](), Spreading()
    for name in ("a", "b"):
        spreading.add("digest", name, ArchiveServer({}, lambda name=name: stopped.append(name)))  # type: ignore[misc]
    spreading.close()
    assert sorted(stopped) == ["a", "b"]
