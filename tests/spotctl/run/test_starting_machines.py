"""What machines wait for is said now and then, until they work."""

from __future__ import annotations

from spotctl.run.start.observing import WAIT_SECONDS, _Waiting


def test_a_line_appears_after_a_while_and_again_when_there_is_something_new() -> None:
    waiting = _Waiting()
    assert not waiting.line("m: booting", 0.0)
    assert (
        waiting.line("m: sending packages (1.0 of 48.0 MiB)", WAIT_SECONDS) == "m: sending packages (1.0 of 48.0 MiB)"
    )
    assert not waiting.line("m: sending packages (1.1 of 48.0 MiB)", WAIT_SECONDS + 1)
    assert not waiting.line("m: sending packages (1.0 of 48.0 MiB)", 3 * WAIT_SECONDS)
    assert waiting.line("m: sending packages (9.0 of 48.0 MiB)", 3 * WAIT_SECONDS + 1)


def test_machines_that_work_soon_are_not_mentioned() -> None:
    waiting = _Waiting()
    assert not waiting.line("m: booting", 0.0)
    assert not waiting.line("", 1.0)
    assert not waiting.line("n: booting", WAIT_SECONDS)
