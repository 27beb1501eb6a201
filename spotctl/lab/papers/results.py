"""Results of papers: what a paper prints (`papers.toml`), what a run here gives, and whether the
two agree.

Agreement: the mean over seeds lies in the paper's own spread, or within 10% of a single figure.
Otherwise the gap counts as explained if switching the suspected cause, and nothing else, closes two
thirds of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from math import inf, isfinite
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, Field

from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from bidbrain.lab.backtest.results import ConfidenceInterval

FigureValues = Mapping[str, float]
"""A figure of the result by its name in `papers.toml`; `SERIES @ X` is a point of a curve, for the
picture."""

TOLERANCE, CLOSED, MIN_SEEDS = 0.10, 2 / 3, 5
TEN_MINUTES, CORES = 600.0, 2
_MODULES = ("market", "agileml", "stragglers", "backups", "pipelines", "gavel", "pricing")


@dataclass(frozen=True)
class PaperData:
    """Files of other people's measurements, by their path in `pricing_data/samples/papers` or in
    the user's folder.
    """

    folder: Path | None = None

    def file(self, path: str) -> Path:
        """Where the file is; it may be missing."""
        packaged = Path(str(files("pricing_data.samples"))) / "papers" / path
        if packaged.exists() or self.folder is None:
            return packaged
        return self.folder / path


ExperimentRun = Callable[[int, PaperData], FigureValues]


@dataclass(frozen=True)
class Experiment:
    """One result of a paper, and how it is reproduced: its table in `papers.toml` has the same
    name.
    """

    name: str
    run: ExperimentRun | None
    """Figures for a seed; None: not reproducible, for the reason that `difference` gives."""
    seconds: float
    """About what a seed takes on one core."""
    difference: str
    seeds: int = 5
    """1 where nothing is drawn."""
    needs: tuple[str, ...] = ()
    cause: str = ""
    """The suspected cause, which `switched` changes."""
    switched: ExperimentRun | None = None
    record: str = ""
    """The record that stands in for the paper's own, which cannot be had."""
    axes: tuple[str, str] = ("", "")
    """Labels of a picture of curves."""

    def planned_seconds(self, seeds: int | None) -> float:
        """About what all seeds take on one core, with the cause switched and without."""
        if self.run is None:
            return 0.0
        runs = self.seeds_of(seeds)
        if self.switched is not None:
            runs *= 2
        return self.seconds * runs

    def seeds_of(self, seeds: int | None) -> int:
        if seeds is None or self.seeds == 1:
            return self.seeds
        return seeds


class PaperFigure(BaseModel, extra="forbid", frozen=True):
    """A figure as the paper prints it. `low` and `high` are the paper's own spread; one of them
    alone is a bound.
    """

    paper: float | None = None
    low: float | None = None
    high: float | None = None
    unit: Literal["", "x", "%", "s", "h", "days", "$"] = ""
    where: str
    """Table, figure or section."""
    line: str = Field(pattern=r"[HNTPD]\d+")
    """Text of the paper and line in it."""
    beyond: Literal["", "lower", "higher"] = ""
    """For what the paper does not do: the direction that is better than its figure."""

    @property
    def spread(self) -> tuple[float, float]:
        """The interval that counts as reproduced."""
        low = -inf if self.low is None else self.low
        high = inf if self.high is None else self.high
        if self.paper is not None:
            margin = TOLERANCE * abs(self.paper)
            low, high = self.paper - margin, self.paper + margin
        return low, high

    @property
    def printed(self) -> tuple[float, float]:
        """The figure itself, as an interval."""
        if self.paper is None:
            return self.spread
        return (self.paper, self.paper)

    def gap(self, value: float) -> float:
        """How far a value is from what the paper prints."""
        low, high = self.printed
        return max(low - value, value - high, 0.0)


class PaperResult(BaseModel, extra="forbid", frozen=True):
    """A result's place on the page, and its figures by name."""

    paper: str
    title: str
    figures: dict[str, PaperFigure]


class Paper(BaseModel, extra="forbid", frozen=True):
    """A heading of the page."""

    title: str
    beyond: str = ""
    """Where spotctl goes further."""


class PapersFile(BaseModel, extra="forbid", frozen=True):
    """`papers.toml`."""

    papers: dict[str, Paper]
    results: dict[str, PaperResult]


def seed_mean(values: Sequence[float]) -> ConfidenceInterval:
    """The mean over seeds, with an interval by Student's t; without several seeds the interval is
    the mean.
    """
    from bidbrain.lab.backtest.results import ConfidenceInterval  # loads all of a backtest

    mean, spread, count = float(np.mean(values)), 0.0, len(values)
    if count > 1 and isfinite(mean):
        from scipy.stats import t

        quantile, deviation = t.ppf(0.975, count - 1), np.std(values, ddof=1)
        spread = float(quantile * deviation / count**0.5)
    return ConfidenceInterval(mean, mean - spread, mean + spread)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure of a result, here and in the paper."""

    what: str
    paper: PaperFigure
    ours: ConfidenceInterval
    switched: ConfidenceInterval | None
    """With the suspected cause switched."""
    verdict: str
    """reproduced, explained, not explained, better or not better."""

    @property
    def ratio(self) -> float | None:
        """Ours by the paper's figure, or by the middle of its spread."""
        low, high = self.paper.printed
        middle = (low + high) / 2 if isfinite(high - low) else high if isfinite(high) else low
        if middle:
            return self.ours.mean / middle
        return None


@dataclass(frozen=True)
class Reproduction:
    """A result after its runs."""

    result: Experiment
    text: PaperResult
    seeds: int
    figures: tuple[Comparison, ...]
    curves: Mapping[str, tuple[tuple[float, ConfidenceInterval], ...]]
    """Points by series."""
    missing: tuple[str, ...] = ()
    """Files that it needs and that were not there."""

    @property
    def label(self) -> str:
        """A remark on the record, if it is not the paper's."""
        if self.result.run is None:
            return "not reproducible"
        if self.missing:
            return f"missing: {', '.join(self.missing)} (read with --data FOLDER)"
        if self.result.record:
            return f"other record: {self.result.record}"
        return ""


@cache
def papers_file() -> PapersFile:
    """All figures that the papers print."""
    text = (files(__package__) / "papers.toml").read_text(encoding="utf-8")
    return PapersFile.model_validate(tomllib.loads(text))


@cache
def all_results() -> Mapping[str, Experiment]:
    """Every result by name, in the order of the page."""
    known = dict[str, Experiment]()
    for name in _MODULES:
        module = import_module(f"{__package__}.{name}")
        known |= {result.name: result for result in module.RESULTS}
    return {name: known[name] for name in papers_file().results}


def chosen(names: Sequence[str], seeds: int | None) -> list[Experiment]:
    """The named results; without names those that fit into ten minutes on two cores, the quickest
    first.
    """
    results = all_results()
    for name in names:
        if name not in results:
            raise BadRequest(f"{name!r} is no result (spotctl lab reproduce --list names them)")
    if names:
        return [results[name] for name in dict.fromkeys(names)]

    planned = {name: result.planned_seconds(seeds) for name, result in results.items()}
    left, fitting = TEN_MINUTES * CORES, set[str]()
    for name, seconds in sorted(planned.items(), key=itemgetter(1)):
        left -= seconds
        # A run is not divided: the last one may be alone on its core.
        if left >= 0 and results[name].seconds <= TEN_MINUTES:
            fitting.add(name)

    return [result for name, result in results.items() if name in fitting]


Task = tuple[str, int, bool]
"""A result, a seed, and whether its cause is switched."""


def tasks(results: Iterable[Experiment], data: PaperData, seeds: int | None) -> list[Task]:
    """The runs to make, the longest first; results whose files are missing have none."""
    runnable = [
        result for result in results if result.run is not None and not missing(result, data)
    ]
    runnable.sort(key=attrgetter("seconds"), reverse=True)
    made = list[Task]()
    for result in runnable:
        seeds_of = range(result.seeds_of(seeds))
        made += [(result.name, seed, False) for seed in seeds_of]
        if result.switched is not None:
            made += [(result.name, seed, True) for seed in seeds_of]
    return made


def missing(result: Experiment, data: PaperData) -> tuple[str, ...]:
    return tuple(path for path in result.needs if not data.file(path).exists())


def measure(task: Task, data: PaperData) -> FigureValues:
    """One run, in a process of its own."""
    name, seed, switched = task
    result = all_results()[name]
    run = result.switched if switched else result.run
    assert run is not None
    return run(seed, data)


def compare(
    result: Experiment, data: PaperData, seeds: int | None, measured: Mapping[Task, FigureValues]
) -> Reproduction:
    """All seeds of a result against the paper."""
    text, count = papers_file().results[result.name], result.seeds_of(seeds)
    lacking = missing(result, data)
    if result.run is None or lacking:
        return Reproduction(result, text, 0, (), {}, lacking)

    plain = [measured[result.name, seed, False] for seed in range(count)]
    # Few seeds explain nothing.
    explains = result.switched is not None and (result.seeds == 1 or count >= MIN_SEEDS)
    switched = [measured[result.name, seed, True] for seed in range(count)] if explains else []
    figures = list[Comparison]()
    for what, figure in text.figures.items():
        ours = seed_mean([values[what] for values in plain])
        other: ConfidenceInterval | None = None
        other_mean: float | None = None
        if switched:
            other = seed_mean([values[what] for values in switched])
            other_mean = other.mean
        said = verdict(figure, ours.mean, other_mean)
        figures.append(Comparison(what, figure, ours, other, said))

    points: dict[str, dict[float, ConfidenceInterval]] = {}
    for key in plain[0]:
        series, at, x = key.rpartition(" @ ")
        if at:
            along = points.setdefault(series, {})
            along[float(x)] = seed_mean([values[key] for values in plain])

    curves = {series: tuple(sorted(along.items())) for series, along in points.items()}
    return Reproduction(result, text, count, tuple(figures), curves)


def verdict(figure: PaperFigure, ours: float, switched: float | None) -> str:
    """How a mean compares with the paper's figure."""
    low, high = figure.spread
    if figure.beyond:
        better = ours < figure.printed[0] if figure.beyond == "lower" else ours > figure.printed[1]
        return "better" if better else "not better"

    # Ends of a spread are printed figures: a rounding error does not leave it.
    slack = 1e-9 * max(1.0, abs(ours))
    if low - slack <= ours <= high + slack:
        return "reproduced"
    if switched is not None and figure.gap(switched) <= (1 - CLOSED) * figure.gap(ours):
        return "explained"

    return "not explained"
