"""The comparison of schemes: those without delay compute the same, and the others lose no time."""

from __future__ import annotations

from pathlib import Path

from bench.pipeline_convergence import courses, draw_losses, draw_timelines, table


def test_every_scheme_trains_on_the_same_microbatches(tmp_path: Path) -> None:
    found = courses(3)
    assert found["gpipe"].losses == found["flush"].losses == found["interleaved"].losses
    assert len({one.losses[-1] for one in found.values()}) == 4
    # Three stages fill and drain in each update; with two chunks in half the time.
    assert [found[name].period for name in ("flush", "interleaved", "2bw", "pipedream")] == [
        33,
        28.5,
        24,
        24,
    ]
    assert "| `flush` | 33.0 |" in table(found)
    draw_losses(found, tmp_path / "losses.svg")
    draw_timelines(found, tmp_path / "timelines.svg")
    for name in ("losses.svg", "timelines.svg"):
        assert (tmp_path / name).read_text().endswith("</svg>\n")
