"""The live view, its keys and sizes, driven by Textual's pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Static

from spotctl.show.top.app import LivePanel, Top
from spotctl.show.top.snapshot import RunSnapshot
from tests.spotctl.show.top.test_snapshot import snapshot, text

SIZES = [(80, 24), (200, 50)]


class FakeRun:
    """A run that is one clock further with every snapshot."""

    def __init__(self, job: str) -> None:
        self.job, self.snapshots = job, 0

    def __call__(self) -> RunSnapshot:
        self.snapshots += 1
        one = snapshot()
        return replace(one, job=self.job, run=f"{self.job}-1", clock=self.snapshots, events=one.events * 30)


def piloted(sources: list[FakeRun], size: tuple[int, int], play: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Top(sources).run_test(size=size) as pilot:
            await pilot.pause()
            await play(pilot)

    asyncio.run(run())


def panel(pilot: Pilot[None], name: str) -> list[str]:
    found = pilot.app.query_one(f"#{name}", LivePanel)
    return text(found.render(), found.size.width)


@pytest.mark.parametrize("size", SIZES)
def test_all_panels_fit(size: tuple[int, int]) -> None:
    async def play(pilot: Pilot[None]) -> None:
        assert panel(pilot, "head")[0].startswith("small-1   running   stage 2   clock")
        assert panel(pilot, "footprint")[0].startswith("machines  over 10 min, at most 6")
        assert panel(pilot, "loss")[0].startswith("loss  0.8 at clock 10, 0.2 at clock 40")
        for name in ("head", "footprint", "loss", "prices", "title", "events"):
            part = pilot.app.query_one(f"#{name}")
            assert part.size.height > 0
            assert part.region.bottom <= size[1]
        assert pilot.app.query_one("#events").size.height >= 5

    piloted([FakeRun("small")], size, play)


def test_resizing() -> None:
    async def play(pilot: Pilot[None]) -> None:
        for width, height in (*SIZES[::-1], (60, 15), *SIZES):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            assert pilot.app.query_one("#head", LivePanel).size.width == width
            side_by_side = pilot.app.query_one("#loss").region.x > 0
            assert side_by_side == (width >= 120)

    piloted([FakeRun("small")], SIZES[0], play)


def test_a_snapshot_while_the_panels_are_being_removed_is_not_shown() -> None:
    async def play(pilot: Pilot[None]) -> None:
        assert isinstance(pilot.app, Top)
        await pilot.app.query_one("#prices").remove()
        pilot.app.take_snapshot()

    piloted([FakeRun("small")], SIZES[0], play)


def test_q_quits() -> None:
    async def play(pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await pilot.pause()
        assert not pilot.app.is_running

    piloted([FakeRun("small")], SIZES[0], play)


def test_space_pauses_refreshing() -> None:
    run = FakeRun("small")

    async def play(pilot: Pilot[None]) -> None:
        await pilot.press("space")
        before = run.snapshots
        await pilot.press("down", "up")
        assert isinstance(pilot.app, Top)
        pilot.app.take_snapshot()
        assert run.snapshots == before
        assert "paused" in str(pilot.app.query_one("#title", Static).content)
        await pilot.press("space")
        await pilot.pause()
        assert run.snapshots > before
        assert "paused" not in str(pilot.app.query_one("#title", Static).content)

    piloted([run], SIZES[0], play)


def test_n_switches_to_the_next_job_and_wraps_around() -> None:
    async def play(pilot: Pilot[None]) -> None:
        for job in ("other", "small"):
            await pilot.press("n")
            await pilot.pause()
            assert panel(pilot, "head")[0].startswith(f"{job}-1")

    piloted([FakeRun("small"), FakeRun("other")], SIZES[0], play)


def test_arrows_scroll_the_events() -> None:
    async def play(pilot: Pilot[None]) -> None:
        events = pilot.app.query_one("#events", VerticalScroll)
        await pilot.press("down", "down", "pagedown", "up")
        await pilot.pause()
        assert events.scroll_y == 11

    piloted([FakeRun("small")], SIZES[0], play)


def test_the_footer_shows_only_keys_that_do_something() -> None:
    app = Top([FakeRun("small"), FakeRun("other")])
    assert app.check_action("next_job", ())

    async def play(pilot: Pilot[None]) -> None:
        keys = {binding.binding.key for binding in pilot.app.screen.active_bindings.values() if binding.binding.show}
        assert keys == {"q", "space", "down", "up"}

    piloted([FakeRun("small")], SIZES[0], play)
