"""The live view, its keys and its sizes, by Textual's own pilot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Static

from spotctl.show.top.app import Panel, Top
from spotctl.show.top.snapshot import Shown
from tests.spotctl.show.top.test_snapshot import seen, text

SIZES = [(80, 24), (200, 50)]


class Watched:
    """A run that goes on: a clock further at every look."""

    def __init__(self, job: str) -> None:
        self.job, self.looks = job, 0

    def __call__(self) -> Shown:
        self.looks += 1
        one = seen()
        return replace(one, job=self.job, run=f"{self.job}-1", clock=self.looks, told=one.told * 30)


def piloted(look: list[Watched], size: tuple[int, int], play: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Top(look).run_test(size=size) as pilot:
            await pilot.pause()
            await play(pilot)

    asyncio.run(run())


def panel(pilot: Pilot[None], name: str) -> list[str]:
    found = pilot.app.query_one(f"#{name}", Panel)
    return text(found.render(), found.size.width)


@pytest.mark.parametrize("size", SIZES)
def test_all_parts_have_room(size: tuple[int, int]) -> None:
    async def play(pilot: Pilot[None]) -> None:
        assert panel(pilot, "head")[0].startswith("small-1   running   stage 2   clock")
        assert panel(pilot, "footprint")[0].startswith("footprint  machines over 10 min, 6 at most")
        assert panel(pilot, "loss")[0].startswith("loss  0.8 at first, 0.2 at clock 40")
        for name in ("head", "footprint", "loss", "prices", "title", "events"):
            part = pilot.app.query_one(f"#{name}")
            assert part.size.height > 0
            assert part.region.bottom <= size[1]
        assert pilot.app.query_one("#events").size.height >= 5

    piloted([Watched("small")], size, play)


def test_it_goes_on_after_a_resize() -> None:
    async def play(pilot: Pilot[None]) -> None:
        for width, height in (*SIZES[::-1], (60, 15), *SIZES):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            assert pilot.app.query_one("#head", Panel).size.width == width
            beside = pilot.app.query_one("#loss").region.x > 0
            assert beside == (width >= 120)

    piloted([Watched("small")], SIZES[0], play)


def test_q_leaves_and_asks_nothing_of_the_run() -> None:
    async def play(pilot: Pilot[None]) -> None:
        await pilot.press("q")
        await pilot.pause()
        assert not pilot.app.is_running

    piloted([Watched("small")], SIZES[0], play)


def test_space_holds_what_is_shown() -> None:
    look = Watched("small")

    async def play(pilot: Pilot[None]) -> None:
        await pilot.press("space")
        before = look.looks
        await pilot.press("down", "up")
        await pilot.pause(0.7)
        assert look.looks == before
        assert "held" in str(pilot.app.query_one("#title", Static).content)
        await pilot.press("space")
        await pilot.pause()
        assert look.looks > before
        assert "held" not in str(pilot.app.query_one("#title", Static).content)

    piloted([look], SIZES[0], play)


def test_n_goes_to_the_next_job_and_round() -> None:
    async def play(pilot: Pilot[None]) -> None:
        for job in ("other", "small"):
            await pilot.press("n")
            await pilot.pause()
            assert panel(pilot, "head")[0].startswith(f"{job}-1")

    piloted([Watched("small"), Watched("other")], SIZES[0], play)


def test_arrows_go_through_what_happened() -> None:
    async def play(pilot: Pilot[None]) -> None:
        events = pilot.app.query_one("#events", VerticalScroll)
        await pilot.press("down", "down", "pagedown", "up")
        await pilot.pause()
        assert events.scroll_y == 11

    piloted([Watched("small")], SIZES[0], play)


def test_the_keys_are_shown() -> None:
    """Only those that do something: with one job there is no next one."""
    app = Top([Watched("small"), Watched("other")])
    assert app.check_action("next_job", ())

    async def play(pilot: Pilot[None]) -> None:
        keys = {binding.binding.key for binding in pilot.app.screen.active_bindings.values() if binding.binding.show}
        assert keys == {"q", "space", "down", "up"}

    piloted([Watched("small")], SIZES[0], play)
