"""`spotctl lab reproduce`: its table, JSON, pictures, and the page docs/papers.md."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotctl.home.errors import BadRequest
from spotctl.lab.papers.results import (
    CORES,
    Comparison,
    Experiment,
    PaperData,
    PaperFigure,
    Reproduction,
    all_results,
    missing,
    papers_file,
)
from spotctl.show.columns import WALL_SECONDS, Column, finite
from spotctl.show.plots import (
    BLUE,
    GOLD,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    output_folder,
    panels,
    save_plot,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bidbrain.lab.backtest.results import ConfidenceInterval

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, GOLD, RED, INK)
_WIDTH = 130
_VERDICTS = ("reproduced", "explained", "not explained", "better", "not better", "not reproducible")


def amount(value: float, unit: str) -> str:
    """A figure in its unit, to three digits."""
    if unit == "%":
        return f"{100 * value:.3g}%"
    if unit == "$":
        return f"${value:,.0f}"
    plain = f"{value:.3g}"
    if abs(value) >= 1000:
        plain = f"{value:,.0f}"
    if unit in ("", "x"):
        return f"{plain}{unit}"
    return f"{plain} {unit}"


def printed(figure: PaperFigure) -> str:
    """A figure as the paper prints it."""
    low, high, unit = figure.low, figure.high, figure.unit
    if figure.paper is not None:
        return amount(figure.paper, unit)
    if low is not None and high is not None:
        return f"{amount(low, unit)} to {amount(high, unit)}"
    if low is not None:
        return f"at least {amount(low, unit)}"
    assert high is not None
    return f"at most {amount(high, unit)}"


def estimated(estimate: ConfidenceInterval | None, unit: str) -> str:
    """A mean, and its interval where several seeds differ."""
    if estimate is None:
        return ""
    mean, low, high = (
        amount(value, unit) for value in (estimate.mean, estimate.low, estimate.high)
    )
    if low == high:
        return mean
    return f"{mean} ({low} to {high})"


def lasting(seconds: float) -> str:
    """How long it takes, about."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min"


def planned(result: Experiment, seeds: int | None) -> str:
    """The time that a result takes, as it is printed before the run."""
    if result.run is None:
        return "not reproducible"
    each, seconds = result.seeds_of(seeds), result.planned_seconds(seeds) / CORES
    text = f"about {lasting(seconds)}"
    if each > 1:
        text += f", {each} seeds"
    return text


SEED_MEAN: tuple[Column[ConfidenceInterval], ...] = (
    Column("mean", "mean over seeds"),
    Column("low", "lower end of its 95% interval"),
    Column("high", "upper end of its 95% interval"),
)
FIGURE: tuple[Column[Comparison], ...] = (
    Column("what", "the figure", heading="figure"),
    Column("where", "its table, figure or section in the paper", "paper.where"),
    Column("line", "text of the paper and line: H, N, T, P or D", "paper.line"),
    Column("unit", "x (times), % (a share of 1), s, h, days, $, or none", "paper.unit"),
    Column(
        "paper",
        "what the paper prints, as an interval; null is unbounded",
        lambda row: [finite(end) for end in row.paper.printed],
        heading="paper",
        cell=lambda row: printed(row.paper),
    ),
    Column(
        "ours",
        "what was found here",
        of=SEED_MEAN,
        heading="here",
        cell=lambda row: estimated(row.ours, row.paper.unit),
    ),
    Column(
        "ratio",
        "ours by the paper's, or by the middle of its spread",
        heading="ratio",
        show="{:.2f}",
    ),
    Column(
        "switched",
        "what was found here with the suspected cause switched; null without one",
        of=SEED_MEAN,
    ),
    Column(
        "verdict",
        "reproduced, explained or not explained; better or not better for what the paper does not "
        "do",
        heading="verdict",
    ),
)
RESULT: tuple[Column[Reproduction], ...] = (
    Column("name", "name of the result", "result.name"),
    Column("paper", "the paper", "text.paper"),
    Column("title", "what is measured", "text.title"),
    Column("seeds", "number of seeds; 0 if it could not run"),
    Column(
        "label",
        "other record, not reproducible, or the missing file; empty for the paper's own setting",
    ),
    Column("difference", "why the figures differ, or what is alike", "result.difference"),
    Column(
        "cause",
        "what was switched to explain a gap; empty if nothing",
        "result.cause",
    ),
    Column("figures", "figures of the paper", each=FIGURE),
    Column(
        "curves",
        "points of pictures by series: x and the estimate",
        lambda row: {
            name: [[x, y.mean, y.low, y.high] for x, y in line] for name, line in row.curves.items()
        },
    ),
)
ANSWER: tuple[Column[Any], ...] = (
    Column("results", "one for each result", each=RESULT),
    WALL_SECONDS,
)
LISTED: tuple[Column[Experiment], ...] = (
    Column("name", "name of the result", heading="result"),
    Column(
        "title",
        "what is measured",
        lambda row: papers_file().results[row.name].title,
        heading="what",
    ),
    Column(
        "seconds",
        "about how long it takes with all seeds on two cores",
        lambda row: row.planned_seconds(None) / CORES,
        heading="time",
        show=lasting,
    ),
    Column(
        "data",
        "files that it needs and that are not packaged: --data FOLDER",
        lambda row: missing(row, PaperData()),
        heading="data",
        show=", ".join,
    ),
)
LIST: tuple[Column[Any], ...] = (Column("results", "one for each result", each=LISTED),)


def lines(done: Reproduction) -> list[str]:
    """The remarks below the figures of a result."""
    said, switched = done.result.difference, _switched(done)
    remarks = [f"{said} {switched}".strip()]
    if done.label:
        remarks.insert(0, done.label)
    return remarks


def _switched(done: Reproduction) -> str:
    remarks = list[str]()
    for row in done.figures:
        if row.switched is not None and row.verdict in ("explained", "not explained"):
            ours = estimated(row.switched, row.paper.unit)
            remarks.append(f"{row.what} {ours}")
    if remarks:
        return f"With only {done.result.cause}: {'; '.join(remarks)}."
    return ""


# -- docs/papers.md --------------------------------------------------------------------------------

_HEAD = """# The papers, reproduced

Written by `spotctl lab reproduce`: with names of results and `--page docs/papers.md` it measures these results again
and replaces their parts of this page. `spotctl lab reproduce --list` names all results and the time each takes;
without names, those run that fit into ten minutes on two cores.

*Reproduced*: the mean over seeds is within the paper's own spread, or within 10% of a single figure. *Explained*:
switching only the cause that is named, over five seeds, closes two thirds of the gap. Where two texts of the same
authors differ, the spread is between them. Everything else that differs is *not explained*. In brackets is a 95%
interval over seeds. *Other record*: the paper's market or measurements cannot be
had, and ours are of another time. After the paper's figure stand its table, figure or section, and a line of the text:
H is the dissertation of A. Harlap, N that of D. Narayanan, T TierML, P PSLD, and D DBW. All instruments are the
project's own.
"""


def page(done: Iterable[Reproduction], old: str) -> str:
    """The page, with the parts of these results made again and the others as they were."""
    blocks = dict(re.findall(r"<!-- (\S+) -->\n(.*?)\n<!-- end -->", old, flags=re.DOTALL))
    blocks |= {each.result.name: _block(each) for each in done}
    counts, parts, file = list[str](), list[str](), papers_file()
    for name, paper in file.papers.items():
        names = [result for result in all_results() if file.results[result].paper == name]
        own = [result for result in names if result in blocks]
        if not own:
            continue

        verdicts = Counter[str]()
        for result in own:
            rows = re.findall(r"^\|.*\| ([^|]+) \|$", blocks[result], flags=re.MULTILINE)
            verdicts.update(row for row in rows if row in _VERDICTS)
        cells = [str(verdicts[verdict] or "") for verdict in _VERDICTS]
        counts.append(f"| {paper.title} | {' | '.join(cells)} |")
        parts.append(f"## {paper.title}\n")
        if paper.beyond:
            beyond = _filled(f"*Beyond the paper:* {paper.beyond}")
            parts.append(f"{beyond}\n")
        parts += [f"<!-- {result} -->\n{blocks[result]}\n<!-- end -->\n" for result in own]

    headings, rule = " | ".join(_VERDICTS), " ---: |" * len(_VERDICTS)
    head = f"| figures | {headings} |\n| --- |{rule}"
    return "\n".join([_HEAD, head, *counts, "", *parts])


def _block(done: Reproduction) -> str:
    name, title = done.result.name, done.text.title
    written = [f"### {title}\n"]
    if done.label:
        written.append(f"*{done.label[0].upper()}{done.label[1:]}.*\n")
    written.append("| figure | paper | here | ratio | verdict |\n| --- | --- | --- | ---: | --- |")

    for row in done.figures:
        ours = estimated(row.ours, row.paper.unit)
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        place = f"({row.paper.where}, {row.paper.line})"
        paper = f"{printed(row.paper)} {place}"
        written.append(f"| {row.what} | {paper} | {ours} | {ratio} | {row.verdict} |")
    if not done.figures:
        unknown = "not reproducible" if done.result.run is None else "missing file"
        for what, figure in done.text.figures.items():
            place = f"({figure.where}, {figure.line})"
            paper = f"{printed(figure)} {place}"
            written.append(f"| {what} | {paper} |  |  | {unknown} |")

    text = " ".join(filter(None, (done.result.difference, _switched(done))))
    written.append(f"\n{_filled(text)}")
    command = f"`spotctl lab reproduce {name}`"
    if done.seeds:
        seconds = done.result.planned_seconds(done.seeds) / CORES
        seeds = f"{done.seeds} seeds, " if done.seeds > 1 else ""
        command += f" ({seeds}about {lasting(seconds)})"
    written.append(f"\n{command}")
    if done.curves:
        written.append(f"\n![{title}](pictures/papers/{name}.svg)")

    return "\n".join(written)


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def write_page(path: Path, done: Sequence[Reproduction]) -> None:
    """Writes the page, and the pictures of curves into `pictures/papers` next to it."""
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = page(done, old)
        path.write_text(new, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise BadRequest(f"--page {path}: {reason}") from error
    pictured = [each for each in done if each.curves]
    plot(path.parent / "pictures" / "papers", pictured, ".svg")


def plot(folder: Path, done: Sequence[Reproduction], suffix: str = ".png") -> None:
    """A picture of each result: its curves, or its figures next to the paper's."""
    with output_folder(folder):
        for each in done:
            if each.curves or each.figures:
                figure = _draw_curves(each) if each.curves else _draw_figures(each)
                save_plot(figure, folder / f"{each.result.name}{suffix}")


def _draw_curves(done: Reproduction) -> Figure:
    figure, (axes,) = panels(7, 4)
    for color, (series, points) in zip(_COLORS * 2, done.curves.items(), strict=False):
        across, means = list[float](), list[float]()
        lows, highs = list[float](), list[float]()
        for x, estimate in points:
            across.append(x)
            means.append(estimate.mean)
            lows.append(estimate.low)
            highs.append(estimate.high)

        axes.plot(across, means, marker="o", markersize=3, label=series, color=color)
        axes.fill_between(across, lows, highs, color=color, alpha=0.2)

    across_label, up_label = done.result.axes
    axes.set(xlabel=across_label, ylabel=up_label, ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_figures(done: Reproduction) -> Figure:
    """Ours by the paper's, with the interval; the band is the paper's spread."""
    rows = [row for row in done.figures if row.ratio]
    rows.reverse()
    figure, (axes,) = panels(8, 1 + 0.4 * max(1, len(rows)))
    for place, row in enumerate(rows):
        assert row.ratio is not None
        by = row.ours.mean / row.ratio
        low, high = row.paper.spread
        band = [max(low / by, 0.0), min(high / by, 2.0)]
        interval, level = [row.ours.low / by, row.ours.high / by], [place, place]
        axes.plot(band, level, color=GOLD, linewidth=9, alpha=0.4)
        axes.plot(interval, level, color=BLUE, linewidth=1.5)
        axes.plot([row.ratio], [place], "o", color=BLUE, markersize=5)

    names = [row.what for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set_xlabel("here by paper; the band is what counts as reproduced")
    return figure
