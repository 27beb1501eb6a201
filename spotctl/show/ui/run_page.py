"""A run in a browser: its cost against plan and budget, machines, loss, prices, events and output. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from urllib.parse import quote

from bidbrain.billing import usd
from pricing_data.units import HOUR, counted, usd_text
from spotctl.log.state import EVICTED
from spotctl.show.costs.charts.lines import line_chart
from spotctl.show.costs.charts.steps import EvictionMark, Layer, PriceLine, footprint, prices
from spotctl.show.costs.charts.svg import series_class
from spotctl.show.costs.html import Html, el
from spotctl.show.costs.page_parts import (
    ColumnHead,
    figure,
    for_both_widths,
    paragraph,
    section,
    table,
    tiles_of,
    times,
)
from spotctl.show.phrases import spending_text
from spotctl.show.terminal import dollars, percent
from spotctl.show.top.snapshot import MarketLine, RunSnapshot
from spotctl.show.ui.overview import ACTIVE
from spotctl.show.ui.page_shell import renewed_page

_MOST_EVENTS = 100
_REPLAYED = "Replayed on the local market: nothing is billed. Times are those of the market, except in the output."
_PRICES = "Prices per hour"
_UNKNOWN = "-"


def run_page(snapshot: RunSnapshot, output: Sequence[str]) -> str:
    """The page of a job's latest run; `output` are the last lines that its machines printed."""
    return renewed_page(
        f"{snapshot.run}: {snapshot.status}",
        el(
            "nav",
            el("a", "All runs", href="../"),
            el("a", "Costs of this job", href=f"../costs?job={quote(snapshot.job)}"),
        ),
        el("h1", f"{snapshot.run}: {snapshot.status}"),
        *([paragraph(_REPLAYED, "notice")] if snapshot.is_replayed else []),
        tiles_of(_tiles(snapshot)),
        _cost(snapshot),
        _machines(snapshot),
        _loss(snapshot),
        _prices(snapshot),
        _events(snapshot),
        section("Output", el("pre", "\n".join(output))) if output else Html(),
    )


def _tiles(snapshot: RunSnapshot) -> list[tuple[str, str, str]]:
    money = snapshot.money
    spent = _UNKNOWN if money.spending is None else spending_text(money.spending)
    return [
        ("Spent", spent, "" if money.budget is None else f"{percent(money.used)} of the budget"),
        ("Saved", percent(money.saved), f"of {_usd(money.on_demand)} on demand for the same work"),
        ("Machines", str(snapshot.reliable + snapshot.transient), _kinds(snapshot)),
        (
            "Evictions",
            str(snapshot.evictions),
            f"{counted(snapshot.warned, 'machine')} warned" if snapshot.warned else "",
        ),
        ("Progress", *_progress(snapshot)),
    ]


def _kinds(snapshot: RunSnapshot) -> str:
    if snapshot.status not in ACTIVE:
        return "" if snapshot.reliable + snapshot.transient else "all returned"
    return f"{snapshot.reliable} reliable, {snapshot.transient} transient" if snapshot.reliable else ""


def _progress(snapshot: RunSnapshot) -> tuple[str, str]:
    if snapshot.clock is None:
        return f"{(snapshot.now - snapshot.started) / HOUR:.1f} h", snapshot.command
    of = "" if snapshot.goal is None else f" of {snapshot.goal:,} clocks"
    return f"{snapshot.clock:,}", f"{of or 'clocks'}, stage {snapshot.stage}".removeprefix(" ")


def _cost(snapshot: RunSnapshot) -> Html:
    """The cost next to that on demand, plan and budget."""
    money, planned, spent = snapshot.money, snapshot.planned, snapshot.money.spent
    so_far = " so far" if snapshot.status in ACTIVE else ""
    amounts = [
        (f"Spent{so_far}", None if spent is None else usd(spent), "paid"),
        (f"Same work on demand{so_far}", None if money.on_demand is None else usd(money.on_demand), "od"),
    ]
    if planned is not None:
        each = " an hour" if planned.assumed else ""
        between = f"{usd_text(planned.usd_low)} to {usd_text(planned.usd_high)}"
        amounts.append((f"Planned{each or ' in all'} ({between})", planned.usd, "plan"))
    amounts.append(("Budget", None if money.budget is None else usd(money.budget), "reliable"))
    known = [(name, amount, class_) for name, amount, class_ in amounts if amount is not None]
    most = max((amount for _, amount, _ in known), default=0.0) or 1.0
    parts = [
        part
        for name, amount, class_ in known
        for part in (
            el("dt", name),
            el("dd", _bar(amount / most, class_)),
            el("dd", usd_text(amount), class_="amount"),
        )
    ]
    return section("Cost", el("dl", *parts, class_="versus"))


def _bar(share: float, class_: str) -> Html:
    rect = el("rect", width=f"{max(100 * share, 0.4):.2f}%", height=14, rx=3, class_=class_)
    return el("svg", rect, aria_hidden="true")


def _machines(snapshot: RunSnapshot) -> Html:
    if not snapshot.footprint:
        yet = " yet" if snapshot.status in ACTIVE else ""
        return section("Machines", paragraph(f"None was rented{yet}."))
    counts = [(count.at, count.reliable, count.transient) for count in snapshot.footprint]
    counts.append((max(snapshot.now, counts[-1][0]), *counts[-1][1:]))
    layers = [
        Layer("reliable", "reliable machines", tuple((at, float(reliable)) for at, reliable, _ in counts)),
        Layer("spot", "transient machines", tuple((at, float(others)) for at, _, others in counts)),
    ]
    marks = [
        EvictionMark(event.at, "without" not in str(event), str(event))
        for event in snapshot.events
        if str(event).startswith(EVICTED)
    ]
    most = max(reliable + others for _, reliable, others in counts)
    title = f"Machines over time, at most {most}; {snapshot.evictions} evicted"
    picture = for_both_widths(lambda canvas: footprint(canvas, title, layers, (), marks), 240, 40)
    key = [paragraph("Triangles mark evictions; filled ones came without warning.", "lead")] if marks else []
    return section("Machines", *key, figure(picture, [(layer.class_, layer.name) for layer in layers]))


def _loss(snapshot: RunSnapshot) -> Html:
    if not snapshot.losses:
        return Html()
    latest = snapshot.losses[-1][1]
    title = f"Loss by clock{f', {latest:.4g} now' if isfinite(latest) else ''}"
    return section(
        "Loss by clock", figure(for_both_widths(lambda canvas: line_chart(canvas, title, snapshot.losses), 220))
    )


def _prices(snapshot: RunSnapshot) -> Html:
    if not snapshot.markets:
        return Html()
    held = [line for line in snapshot.markets if line.machines and not line.reliable]
    lines = [_price_line(snapshot, number, line) for number, line in enumerate(held)]
    lines = [line for line in lines if line.pieces]
    heads = (ColumnHead("market", is_text=True), *map(ColumnHead, ("machines", "spot", "bid")))
    heads += (ColumnHead("on demand", wide_only=True),)
    rows = [_market(line) for line in snapshot.markets]
    if any(line.gpus for line in snapshot.markets):
        heads += (ColumnHead("GPU busy", wide_only=True),)
        busy = ["" if line.gpus is None else percent(line.gpus[0]) for line in snapshot.markets]
        rows = [(*row, share) for row, share in zip(rows, busy, strict=True)]
    if not lines:
        return section(_PRICES, table(heads, rows))
    title = f"Prices of {len(lines)} markets in percent of on demand"
    picture = for_both_widths(lambda canvas: prices(canvas, title, lines), 220)
    chart = figure(picture, [(line.class_, line.name) for line in lines])
    lead = paragraph("The chart shows spot prices in percent of on demand.", "lead")
    return section(_PRICES, lead, chart, table(heads, rows))


def _price_line(snapshot: RunSnapshot, number: int, line: MarketLine) -> PriceLine:
    """The price of a market since the run began."""
    pieces = list[tuple[int, int, float]]()
    if line.series is not None and line.on_demand:
        times = [*line.series.times.tolist(), snapshot.now]
        for (begin, end), price in zip(pairwise(times), line.series.prices.tolist(), strict=True):
            begun = max(begin, snapshot.started)
            if begun < min(end, snapshot.now):
                pieces.append((begun, min(end, snapshot.now), 100 * price / line.on_demand))
    return PriceLine(series_class(number), str(line.market), tuple(pieces))


def _market(line: MarketLine) -> tuple[str, ...]:
    return (
        str(line.market),
        str(line.machines),
        _UNKNOWN if line.price is None else dollars(line.price),
        _bid(line),
        dollars(line.on_demand),
    )


def _bid(line: MarketLine) -> str:
    if line.reliable or line.market.reservation:
        return "reliable" if line.reliable else "reserved"
    return _UNKNOWN if line.bid is None else dollars(line.bid)


def _events(snapshot: RunSnapshot) -> Html:
    heads = (ColumnHead("at (UTC)", is_text=True), ColumnHead("event", is_text=True))
    latest = snapshot.events[: -_MOST_EVENTS - 1 : -1]
    rows = zip(times([event.at for event in latest]), map(str, latest), strict=True)
    return section("Events", table(heads, list(rows)))


def _usd(amount: int | None) -> str:
    return _UNKNOWN if amount is None else usd_text(usd(amount))
