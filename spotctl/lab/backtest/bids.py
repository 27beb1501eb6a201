"""Ways of bidding in generated markets: the scenario of `backtest run` that lists `markets` with
their rivals, and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field
from rich.console import Group

from bidbrain.lab.bids.backtest import WAYS, bidding_of
from bidbrain.lab.bids.market import Assumptions
from bidbrain.lab.bids.results import (
    BidPortion,
    BidSummary,
    OddsBand,
    OddsScore,
    PlayedBid,
    TriedBid,
    bands,
    scores,
    summarize,
)
from bidbrain.outbid.bid import BidTerms
from bidbrain.strategies.registry import USUAL_SHARE
from spotctl.files import yaml_file
from spotctl.lab.option_values import parsed
from spotctl.show.columns import WALL_SECONDS, Column, table

GENERATED = "generated markets: we know of no public record of offers and bids"

BIDS: tuple[Column[BidSummary], ...] = (
    Column("market", heading="generated market"),
    Column("costs", heading="costs"),
    Column("way", heading="bid"),
    Column("cost_pct", heading="cost %", show="{:.1f}"),
    Column("runtime_ratio", heading="run time", show="{:.2f}"),
    Column("outbid", heading="outbid", show="{:.1f}", rank=2),
    Column("displaced", heading="displaced", show="{:.1f}", rank=2),
    Column("with_time_pct", value="with_time_pct", heading="with time %", show="{:.1f}"),
    Column("saved", value="saved", heading="saved", show="{:+.1f}"),
    Column(
        "saved_low",
        heading="90%",
        cell=lambda row: f"[{row.saved_low:+.1f}, {row.saved_high:+.1f}]",
        rank=1,
    ),
)
ODDS: tuple[Column[OddsScore], ...] = (
    Column("market", heading="generated market"),
    Column("bids", heading="bids"),
    Column(
        "outbid_stated",
        value="outbid_stated",
        heading="outbid: stated",
        show="{:.3f}",
    ),
    Column("outbid_seen", value="outbid_seen", heading="seen", show="{:.3f}"),
    Column(
        "displaced_stated",
        value="displaced_stated",
        heading="displaced: stated",
        show="{:.3f}",
    ),
    Column("displaced_seen", value="displaced_seen", heading="seen", show="{:.3f}"),
    Column("brier", heading="Brier", show="{:.4f}"),
    Column("skill", heading="skill", show="{:+.2f}"),
)
BANDS: tuple[Column[OddsBand], ...] = (
    Column("low", heading="stated from", show="{:g}"),
    Column("high", heading="to", show="{:g}"),
    Column("bids", heading="bids"),
    Column("stated", heading="stated", show="{:.3f}"),
    Column("seen", heading="outbid", show="{:.3f}"),
)
BIDS_ANSWER: tuple[Column[Any], ...] = (
    Column("results", "results by market, payment rule and way of bidding", each=BidSummary),
    Column(
        "odds",
        "stated odds by market, next to what became of bids that were held for an hour",
        each=OddsScore,
    ),
    Column("bands", "the same bids by their stated odds of being outbid", each=OddsBand),
    Column("source", "where the markets come from"),
    WALL_SECONDS,
)

_Hours = Annotated[float, Field(gt=0, le=10_000)]
_Spent = Annotated[float, Field(ge=0, le=10_000)]


def _way(name: str) -> str:
    bidding_of(name, BidTerms(0, 0, 1, 0, 0, 0))
    return name


class Saving(BaseModel, extra="forbid"):
    """The work between two checkpoints, and how long one is written."""

    minutes: _Hours = 30
    write_seconds: _Spent = 60


class BidScenario(BaseModel, extra="forbid"):
    """The whole file. An hour of a job is worth what it is in plans of jobs without
    `value_of_time`.
    """

    hours: _Hours
    checkpoint: Saving = Saving()
    loading_minutes: _Spent = 8
    startup_minutes: _Spent = 3
    disk_usd_per_hour: _Spent = 0.01
    starts: Annotated[int, Field(ge=2, le=10_000)] = 40
    tried_bids: Annotated[int, Field(ge=0, le=10_000)] = 15
    schemes: Annotated[list[Annotated[str, AfterValidator(_way)]], Field(min_length=1)] = list(WAYS)
    markets: Annotated[dict[str, Assumptions], Field(min_length=1)]


def is_of_bids(path: Path) -> bool:
    """Whether a scenario compares ways of bidding: other scenarios have prices, and a job with
    terms of its own.
    """
    content = yaml_file.read(path).content
    if not isinstance(content, dict):
        return False
    of_others = {"prices", "store", "job"}
    return "markets" in content and of_others.isdisjoint(content)


def portions_of(path: Path, starts: int) -> list[BidPortion]:
    """The jobs of a scenario; `starts`, if it is not 0, is their number in each market."""
    file = parsed(path, BidScenario)
    seeds, ways = range(starts or file.starts), tuple(file.schemes)
    portions = list[BidPortion]()
    for name, assumed in file.markets.items():
        usual_bid = USUAL_SHARE * assumed.on_demand_usd
        terms = BidTerms(
            file.loading_minutes / 60,
            file.startup_minutes / 60,
            file.checkpoint.minutes / 60,
            file.checkpoint.write_seconds / 3600,
            file.disk_usd_per_hour,
            usual_bid,
        )
        portions += [
            BidPortion(name, assumed, seed, file.hours, terms, ways, file.tried_bids)
            for seed in seeds
        ]

    return portions


def answer_of(
    played: Sequence[tuple[list[PlayedBid], list[TriedBid]]], wall_seconds: float
) -> dict[str, Any]:
    """The results of all portions, which `BIDS_ANSWER` describes."""
    jobs, tried = list[PlayedBid](), list[TriedBid]()
    for of_jobs, of_bids in played:
        jobs += of_jobs
        tried += of_bids
    return {
        "results": list(summarize(jobs)),
        "odds": list(scores(tried)),
        "bands": list(bands(tried)),
        "source": GENERATED,
        "wall_seconds": wall_seconds,
    }


def view(answer: Mapping[str, Any], width: int) -> Group:
    """The tables: ways of bidding, and the odds next to what happened."""
    tables = [table(BIDS, answer["results"], width, names=3)]
    if answer["odds"]:
        tables.append(table(ODDS, answer["odds"], width))
        tables.append(table(BANDS, answer["bands"], width, names=0))
    return Group(*tables)
