"""The engine of setting up: what is made, taken back and removed, whatever fails in between."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from pricing_data.errors import AccessDenied, CloudError
from spotctl.clouds.errors import NotYet
from spotctl.clouds.setup import (
    SetupRecord,
    SetupStep,
    make_all,
    missing,
    public_address,
    undo_all,
)
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from tests.servers.loopback import Reply, serving


class Killed(BaseException):
    pass


class World:
    """Things of two parts, and the failures that are scheduled by the number of a change."""

    def __init__(self, others: set[str], fails: dict[int, BaseException]) -> None:
        self.parts = {name: {1, 2} for name in others}
        self.fails, self.changes = fails, 0

    def change(self) -> None:
        self.changes += 1
        if error := self.fails.pop(self.changes, None):
            raise error

    def make(self, name: str) -> None:
        for part in (1, 2):
            self.change()
            self.parts.setdefault(name, set()).add(part)

    def undo(self, name: str) -> None:
        self.parts.pop(name, None)

    def steps(self) -> list[SetupStep]:
        return [
            SetupStep(
                name,
                name,
                partial(self.parts.__contains__, name),
                partial(self.make, name),
                partial(self.undo, name),
                (),
            )
            for name in "abc"
        ]


def record_at(folder: Path) -> SetupRecord:
    return SetupRecord(Paths(folder), "aws", "1")


@given(st.sets(st.sampled_from("abc")), st.lists(st.integers(1, 6), max_size=3))
def test_killed_anywhere_it_ends_whole_and_undo_leaves_what_others_made(
    others: set[str], kills: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        record, world = record_at(Path(folder)), World(others, {})
        for at in kills:
            world.fails, world.changes = {at: Killed()}, 0
            try:
                make_all(missing(world.steps(), record), record, str)
            except Killed:
                continue
        world.fails = {}
        make_all(missing(world.steps(), record), record, str)
        assert world.parts == {name: {1, 2} for name in "abc"}
        assert missing(world.steps(), record) == []
        assert undo_all(world.steps(), record, str) == []
        assert world.parts == {name: {1, 2} for name in others}
        assert record.made() == {}


@pytest.mark.parametrize("at", range(1, 7))
def test_a_refusal_takes_back_what_was_made(tmp_path: Path, at: int) -> None:
    record, said = record_at(tmp_path), list[str]()
    world = World(set(), {at: AccessDenied("aws: iam:CreateRole: denied", "allow it")})
    with pytest.raises(CloudError, match="iam:CreateRole"):
        make_all(world.steps(), record, said.append)
    assert (world.parts, record.made()) == ({}, {})


def test_what_a_cloud_does_not_know_yet_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotctl.clouds.setup._FIRST_PAUSE", 0.001)
    record, said = record_at(tmp_path), list[str]()
    world = World(set(), {1: NotYet("no such account"), 3: NotYet("no such account")})
    make_all(world.steps(), record, said.append)
    assert (set(world.parts), len(said)) == (set("abc"), 3)

    late = [False, False, False, False, True]
    slow = world.steps()[0]._replace(name="d", what="d", is_there=lambda: late.pop(0), settles=True)
    make_all([slow], record, said.append)
    assert (late, said[-2:]) == ([], ["waiting for the cloud: d", "made d"])

    monkeypatch.setattr("spotctl.clouds.setup.MADE_WITHIN", 1)
    never = slow._replace(name="e", what="e", is_there=lambda: False, undo=partial(world.undo, "a"))
    with pytest.raises(NotYet, match="still at work"):
        make_all([never], record, said.append)
    assert ("e" in record.made(), "a" in world.parts, "made e" in said) == (False, False, False)


def test_what_is_older_is_renewed_and_not_written_down(tmp_path: Path) -> None:
    record, world = record_at(tmp_path), World({"a", "b", "c"}, {})
    state, renewed = {"a": True, "b": None, "c": None}, list[str]()
    steps = [
        step._replace(
            is_there=partial(state.get, step.name), renew=partial(renewed.append, step.name)
        )
        for step in world.steps()
    ]
    record.note("c", whole=True)
    make_all(missing(steps, record), record, str)
    assert (renewed, world.changes, record.made()) == (["b", "c"], 0, {"c": True})


def test_settings_that_cannot_be_written_take_back_what_was_made(tmp_path: Path) -> None:
    record, world = record_at(tmp_path), World(set(), {5: BadRequest("config.toml: write by hand")})
    with pytest.raises(BadRequest):
        make_all(world.steps(), record, str)
    assert (world.parts, record.made()) == ({}, {})


def test_the_address_of_this_computer_is_asked_for(tmp_path: Path) -> None:
    pages = {"/good": Reply(200, b"203.0.113.7\n"), "/six": Reply(200, b"2001:db8::1")}
    world = SimpleNamespace(answer=lambda request: pages.get(request.path, Reply(200, b"<html>")))
    with serving(world) as server:
        good, six, bad = (
            Settings(home=tmp_path, address_url=f"{server.url}/{name}")
            for name in ("good", "six", "bad")
        )
        assert public_address(good) == "203.0.113.7/32"
        assert public_address(six) == "2001:db8::1/128"
        with pytest.raises(BadRequest, match="write ssh_from"):
            public_address(bad)
