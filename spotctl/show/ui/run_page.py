"""A run in a browser: its cost against plan and budget, machines, loss, prices, events and output. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from urllib.parse import quote

from bidbrain.billing import usd
from pricing_data.units import HOUR, counted, usd_text
from spotctl.log.state import EVICTED
from spotctl.show.costs.charts import Layer, PriceLine, footprint, line_chart, prices
from spotctl.show.costs.markup import Html, el, series_class
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
from spotctl.show.runs.lines import command_progress
from spotctl.show.runs.picture import machines_of
from spotctl.show.runs.reading import WatchedRun
from spotctl.show.runs.run_view import MarketView, RunView
from spotctl.show.runs.status import spent_text
from spotctl.show.terminal import dollars, percent
from spotctl.show.ui.overview import ACTIVE
from spotctl.show.ui.page_shell import renewed_page

_MAX_EVENTS = 100
_REPLAYED = "Replayed on the local market: nothing is billed. Times are those of the market, except in the output."
_PRICES = "Prices per hour"
_UNKNOWN = "-"


def run_page(run: WatchedRun, output: Sequence[str]) -> str:
    """The page of a job's latest run; `output` are the last lines that its machines printed."""
    view = run.view
    return renewed_page(
        f"{view.run}: {view.status}",
        el(
            "nav",
            el("a", "All runs", href="../"),
            el("a", "Costs of this job", href=f"../costs?job={quote(view.job)}"),
        ),
        el("h1", f"{view.run}: {view.status}"),
        *([paragraph(_REPLAYED, "notice")] if view.is_replayed else []),
        tiles_of(_tiles(view)),
        _cost(run),
        _machines(run),
        _loss(run),
        _prices(run),
        _events(run),
        section("Output", el("pre", "\n".join(output))) if output else Html(),
    )


def _tiles(view: RunView) -> list[tuple[str, str, str]]:
    money = view.money
    on_demand = _UNKNOWN if money.on_demand is None else usd_text(usd(money.on_demand))
    return [
        ("Spent", spent_text(view), "" if money.budget is None else f"{percent(money.used)} of the budget"),
        ("Saved", percent(money.saved), f"of {on_demand} on demand for the same work"),
        ("Machines", str(len(view.machines)), _kinds(view)),
        ("Evictions", str(view.evictions), f"{counted(view.warned, 'machine')} warned" if view.warned else ""),
        ("Progress", *_progress(view)),
    ]


def _kinds(view: RunView) -> str:
    if view.status not in ACTIVE:
        return "" if view.machines else "all returned"
    return f"{view.reliable} reliable, {view.transient} spot" if view.reliable else ""


def _progress(view: RunView) -> tuple[str, str]:
    if view.clock is None:
        hours = f"{(view.now - view.started) / HOUR:.1f} h"
        return hours, "" if view.command is None else command_progress(view.command)
    of = "" if view.goal is None else f" of {view.goal:,} clocks"
    return f"{view.clock:,}", f"{of or 'clocks'}, stage {view.stage}".removeprefix(" ")


def _cost(run: WatchedRun) -> Html:
    """The cost next to that on demand, plan and budget."""
    money, planned, spent = run.view.money, run.planned, run.view.money.spent
    so_far = " so far" if run.view.status in ACTIVE else ""
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
    parts = list[Html]()
    for name, amount, class_ in known:
        bar = el("rect", width=f"{max(100 * amount / most, 0.4):.2f}%", height=14, rx=3, class_=class_)
        parts += [
            el("dt", name),
            el("dd", el("svg", bar, aria_hidden="true")),
            el("dd", usd_text(amount), class_="amount"),
        ]
    return section("Cost", el("dl", *parts, class_="versus"))


def _machines(run: WatchedRun) -> Html:
    view = run.view
    if not run.footprint:
        yet = " yet" if view.status in ACTIVE else ""
        return section("Machines", paragraph(f"None was rented{yet}."))
    counts = [(count.at, count.reliable, count.transient) for count in run.footprint]
    counts.append((max(view.now, counts[-1][0]), *counts[-1][1:]))
    layers = [
        Layer("reliable", "reliable machines", tuple((at, float(reliable)) for at, reliable, _ in counts)),
        Layer("spot", "spot machines", tuple((at, float(others)) for at, _, others in counts)),
    ]
    marks = [
        (event.at, "without" not in str(event), str(event)) for event in run.events if str(event).startswith(EVICTED)
    ]
    most = max(reliable + others for _, reliable, others in counts)
    title = f"Machines over time, at most {most}; {view.evictions} evicted"
    picture = for_both_widths(lambda canvas: footprint(canvas, title, layers, (), marks), 240, 40)
    key = [paragraph("Triangles mark evictions; filled ones came without warning.", "lead")] if marks else []
    return section("Machines", *key, figure(picture, [(layer.class_, layer.name) for layer in layers]))


def _loss(run: WatchedRun) -> Html:
    if not run.losses:
        return Html()
    latest = run.losses[-1][1]
    title = f"Loss by clock{f', {latest:.4g} now' if isfinite(latest) else ''}"
    return section("Loss by clock", figure(for_both_widths(lambda canvas: line_chart(canvas, title, run.losses), 220)))


def _prices(run: WatchedRun) -> Html:
    markets = run.view.markets
    if not markets:
        return Html()
    held = [line for line in markets if line.machines and not line.reliable]
    lines = [_price_line(run, number, line) for number, line in enumerate(held)]
    lines = [line for line in lines if line.pieces]
    heads = (ColumnHead("market", is_text=True), *map(ColumnHead, ("machines", "spot", "bid")))
    heads += (ColumnHead("on demand", wide_only=True),)
    rows = [_market(run, line) for line in markets]
    if any(line.gpus for line in markets):
        heads += (ColumnHead("GPU busy", wide_only=True), ColumnHead("GPU memory", wide_only=True))
        used = [("", "") if line.gpus is None else (percent(line.gpus[0]), percent(line.gpus[1])) for line in markets]
        rows = [(*row, *shares) for row, shares in zip(rows, used, strict=True)]
    if not lines:
        return section(_PRICES, table(heads, rows))
    title = f"Prices of {len(lines)} markets in percent of on demand"
    picture = for_both_widths(lambda canvas: prices(canvas, title, lines), 220)
    chart = figure(picture, [(line.class_, line.name) for line in lines])
    lead = paragraph("The chart shows spot prices in percent of on demand.", "lead")
    return section(_PRICES, lead, chart, table(heads, rows))


def _price_line(run: WatchedRun, number: int, line: MarketView) -> PriceLine:
    """The price of a market since the run began."""
    view, series, pieces = run.view, run.prices.get(line.market), list[tuple[int, int, float]]()
    if series is not None and line.on_demand:
        times = [*series.times.tolist(), view.now]
        for (begin, end), price in zip(pairwise(times), series.prices.tolist(), strict=True):
            begun = max(begin, view.started)
            if begun < min(end, view.now):
                pieces.append((begun, min(end, view.now), 100 * price / line.on_demand))
    return PriceLine(series_class(number), str(line.market), tuple(pieces))


def _market(run: WatchedRun, line: MarketView) -> tuple[str, ...]:
    price = run.price_of(line)
    return (
        str(line.market),
        machines_of(line),
        _UNKNOWN if price is None else dollars(price),
        _bid(line),
        dollars(line.on_demand),
    )


def _bid(line: MarketView) -> str:
    if line.reliable or line.market.reservation:
        return "reliable" if line.reliable else "reserved"
    return _UNKNOWN if line.bid is None else dollars(line.bid)


def _events(run: WatchedRun) -> Html:
    heads = (ColumnHead("at (UTC)", is_text=True), ColumnHead("event", is_text=True))
    latest = run.events[: -_MAX_EVENTS - 1 : -1]
    rows = zip(times([event.at for event in latest]), map(str, latest), strict=True)
    return section("Events", table(heads, list(rows)))
