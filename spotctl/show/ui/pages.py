"""The pages of `spotctl ui`: money and all jobs, and one run. Pure.

A script renews a page every two seconds without losing one's place, or what one types.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from math import isfinite
from operator import add
from typing import Any
from urllib.parse import quote

import numpy as np

from bidbrain.billing import usd
from pricing_data.units import HOUR, SECOND, counted, moment, usd_text
from spotctl.log.outcomes import DONE
from spotctl.log.state import EVICTED
from spotctl.show.costs.charts import (
    EvictionMark,
    Layer,
    PriceLine,
    Series,
    footprint,
    line_chart,
    prices,
)
from spotctl.show.costs.cost import Report
from spotctl.show.costs.markup import (
    ColumnHead,
    Html,
    document,
    el,
    figure,
    for_both_widths,
    fragment,
    paragraph,
    section,
    series_class,
    table,
    tiles_of,
    times,
    versus,
)
from spotctl.show.costs.periods import Month, on_this_clock
from spotctl.show.phrases import hours_text
from spotctl.show.runs.lines import command_progress
from spotctl.show.runs.picture import bid_text, machines_of
from spotctl.show.runs.reading import WatchedRun
from spotctl.show.runs.run_view import MarketView, RunView
from spotctl.show.runs.status import shown_loss, spent_text, ways_on
from spotctl.show.terminal import dollars, percent

# Nodes that stay keep their focus, selection and scroll position. A link that gets the place of
# another one would take over its focus, so the focus then goes to the link that was chosen.
_SCRIPT = Html("""
const renewAttributes = (node, fresh) => {
  for (const name of node.getAttributeNames()) {
    if (name !== "open" && !fresh.hasAttribute(name)) node.removeAttribute(name);
  }
  for (const name of fresh.getAttributeNames()) {
    if (node.getAttribute(name) !== fresh.getAttribute(name)) node.setAttribute(name, fresh.getAttribute(name));
  }
};
const renewNode = (node, fresh) => {
  if (node.isEqualNode(fresh)) return;
  if (node.nodeName !== fresh.nodeName) return node.replaceWith(fresh);
  if (node.nodeType !== Node.ELEMENT_NODE) { node.data = fresh.data; return; }
  renewAttributes(node, fresh);
  const nodes = [...node.childNodes], wanted = [...fresh.childNodes];
  nodes.slice(wanted.length).forEach(child => child.remove());
  wanted.forEach((child, place) => place < nodes.length ? renewNode(nodes[place], child) : node.append(child));
};
const renew = async () => {
  let fresh = false;
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const chosen = document.activeElement?.getAttribute("href");
    renewNode(document.querySelector("main"), page.querySelector("main"));
    if (chosen && document.activeElement?.getAttribute("href") !== chosen) {
      document.querySelector(`main a[href="${CSS.escape(chosen)}"]`)?.focus({preventScroll: true});
    }
    document.title = page.title;
    fresh = true;
  } catch {}
  document.body.classList.toggle("stale", !fresh);
  setTimeout(renew, 2000);
};
setTimeout(renew, 2000);
""")

LINKS = Html("""
nav { font-size: .875rem; display: flex; gap: 1.25rem; }
a { color: var(--s0); } nav a { padding: .25rem 0; }
@media print { nav { display: none; } }
""")
"""The style of links, also for the page of costs."""

_STYLE = """
main { padding-top: 1.5rem; }
section { margin-top: 1.75rem; padding-top: 1rem; }
td strong { color: var(--redone); } small { color: var(--soft); }
.after { margin-top: .75rem; font-size: .875rem; }
pre {
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8125rem; background: var(--panel); padding: .75rem;
  border-radius: 8px;
}
form { display: flex; flex-wrap: wrap; gap: .5rem .75rem; align-items: center; margin: 0 0 .75rem; }
input, button {
  font: inherit; color: inherit; background: var(--panel); border: 1px solid var(--hair); border-radius: 6px;
  padding: .3rem .6rem; max-width: 100%;
}
button { cursor: pointer; font-weight: 600; }
.over { display: none; }
.stale .over { display: block; position: sticky; top: 0; margin: 0; max-width: none; text-align: center; }
@media (max-width: 43.75rem) {
  td { white-space: normal; } td:last-child { min-width: 4.75em; } td small { display: block; }
  .versus { grid-template-columns: 1fr auto; gap: .15rem .9rem; }
  .versus dt { grid-column: 1 / -1; margin-top: .45rem; }
}
"""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri "
    "'none'; form-action 'self'; frame-ancestors 'none';"
    f" script-src 'sha256-{b64encode(sha256(_SCRIPT.encode()).digest()).decode()}'"
)
"""The Content-Security-Policy of the pages: their own script, and requests to their own server."""


def renewed_page(title: str, *children: str) -> str:
    """A page that shows what is true now, and says when the server has ended."""
    style = el("style", LINKS, Html(_STYLE))
    over = el("p", "spotctl ui has ended; this is what it showed last.", class_="notice over")
    main, script = el("main", *children), el("script", _SCRIPT)
    return document(title, fragment(style, over, main, script))


def short_time(time: str) -> str:
    """`2026-01-15 07:03` for a time of a JSON answer, in UTC as everywhere; empty if there is
    none."""
    if time:
        return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M}"
    return ""


RUNNING = "running"
_INTERRUPTED = "interrupted"
ACTIVE = (RUNNING, "waiting", "stopping", _INTERRUPTED)
STOP, RESUME = COMMANDS = ("stop", "resume")
"""The commands that a page can begin for a job."""
BUDGET = "--budget"
"""The option of `resume` that a page can give, in front of dollars."""
MAX_ENDED = 100
"""Ended runs that are shown unless all are asked for."""
_NEARLY = 0.9
"""The share of a budget from which it is nearly spent."""
_FEWEST = 2
"""Moments that make a picture."""

_NAMES = (ColumnHead("job", is_text=True), ColumnHead("state", is_text=True))
_PROGRESS = (ColumnHead("progress", wide_only=True), ColumnHead("loss", wide_only=True))
_ACTIVE_HEADS = (
    *_NAMES,
    ColumnHead("began (UTC)", wide_only=True),
    ColumnHead("machines"),
    *_PROGRESS,
    ColumnHead("evictions", wide_only=True),
    ColumnHead("left", wide_only=True),
    ColumnHead("to deadline", wide_only=True),
    ColumnHead("spent"),
)
_ENDED_HEADS = (
    *_NAMES,
    ColumnHead("ended (UTC)", wide_only=True),
    *_PROGRESS,
    ColumnHead("evictions"),
    ColumnHead("spent"),
)
_NIGHT_HEADS = (
    ColumnHead("job", is_text=True),
    ColumnHead("next (local time)", is_text=True, wide_only=True),
    ColumnHead("last night", is_text=True),
    ColumnHead("cost"),
)
_FIRST_STEPS = fragment(
    paragraph("Write a job file for your script, and launch it. This page will show the run."),
    el("pre", "spotctl init train.py\nspotctl launch job.yaml"),
)


def overview_page(
    views: Sequence[RunView],
    waits: Sequence[Mapping[str, Any]],
    nights: Sequence[Mapping[str, Any]],
    notices: Sequence[str] = (),
    today: Report | None = None,
    *,
    whole: bool = False,
) -> str:
    """Money, alarms and all jobs. `waits` and `nights` are in the form of `status --json` and
    `nightly ls --json`.
    """
    active = [view for view in views if view.status in ACTIVE]
    title = "Nothing is running" if views else "No runs yet"
    if active or waits:
        title = counted(len(active), "active run")
    if waits:
        title += f", {counted(len(waits), 'job')} waiting"

    parts = [el("nav", el("a", "Costs", href="costs")), el("h1", title)]
    months = () if today is None else (today.month, *today.months_of_tags)
    parts += [paragraph(text, "notice") for text in (*notices, *_alarms(active, months))]
    if not views and not waits:
        parts.append(_FIRST_STEPS)
    if today is not None:
        tiles = _money_tiles(today, months)
        parts.append(tiles_of(tiles))

    rows = list[tuple[str, ...]]()
    for view in active:
        own = (short_time(moment(view.began)), str(len(view.machines)))
        left = list[str]()
        for at in (view.expected_end, view.deadline):
            hours = None if at is None else max(at - view.now, 0) / HOUR
            left.append("" if hours is None else hours_text(hours))
        rows.append(_run_row(view, RUNNING, own, left))

    # The commands that help runs which do not run as they should.
    advice = [ways_on(view) for view in active if view.status not in (RUNNING, "waiting")]
    parts.append(_runs("Now", _ACTIVE_HEADS, rows, advice))
    parts.append(_waiting(waits))
    if today is not None:
        parts.append(_machines_today(today))

    ended = [view for view in views if view.status not in ACTIVE]
    parts += _ended_runs(ended, whole=whole)
    return renewed_page(f"spotctl: {title}", *parts, _nights(nights))


def _ended_runs(ended: Sequence[RunView], *, whole: bool) -> Iterator[Html]:
    """The latest runs that have ended; all of them if `whole`, else a link to all."""
    latest = sorted(ended, key=lambda view: (view.ended or 0) // SECOND, reverse=True)
    shown = latest if whole else latest[:MAX_ENDED]
    rows = list[tuple[str, ...]]()
    for view in shown:
        at = short_time(moment(view.ended) if view.ended else "")
        rows.append(_run_row(view, DONE, (at,)))

    yield _runs("Ended", _ENDED_HEADS, rows)
    if len(shown) < len(latest):
        link = el("a", f"All {len(latest):,} ended runs", href="?all")
        yield paragraph(link)


def _alarms(active: Sequence[RunView], months: Sequence[Month]) -> Iterator[str]:
    """The budgets that are nearly spent, and the deadlines that will be missed."""
    for view in active:
        job, used = view.job, view.money.used
        if used is not None and used > _NEARLY:
            yield f"{job} has spent {percent(used)} of its budget"
        end, deadline = view.expected_end, view.deadline
        if deadline is not None and end is not None and end > deadline:
            late = hours_text((end - deadline) / HOUR)
            yield f"{job} is expected to end {late} after its deadline"

    for month in months:
        forecast = usd(month.forecast)
        if month.budget is not None and forecast > month.budget:
            expected, budget = usd_text(forecast), usd_text(month.budget)
            yield f"{_month_name(month)}: {expected} by its end, of {budget}"


def _month_name(month: Month) -> str:
    if month.tag:
        return f"{month.name}, {month.tag}"
    return month.name


def _money_tiles(today: Report, months: Sequence[Month]) -> list[tuple[str, str, str]]:
    """The money of today and of this month, next to the budgets; what was replayed is no part of
    it.
    """
    tiles = list[tuple[str, str, str]]()
    if not today.is_replayed:
        paid = usd_text(usd(today.whole.total))
        tiles.append(("Paid today", paid, ""))
    if today.is_replayed or today.replayed.total:
        replayed = usd_text(usd(today.replayed.total))
        tiles.append(("Replayed today", replayed, "on prices of the past: nothing is billed"))

    for month in months:
        paid, forecast = usd_text(usd(month.paid)), usd_text(usd(month.forecast))
        if month.budget is not None:
            paid += f" of {usd_text(month.budget)}"
        name = f"Paid in {_month_name(month)}"
        tiles.append((name, paid, f"{forecast} expected by its end"))

    return tiles


def _machines_today(today: Report) -> Html:
    """The machines of all runs of this day, by job, on this computer's clock."""
    runs = [run for run in today.runs if run.mixes]
    counts, every_moment = dict[str, list[tuple[int, int]]](), {today.made_at}
    for run in runs:
        counts[run.run] = []
        for mix in run.mixes:
            at = on_this_clock(run, mix.at, today.made_at)
            _, *held_by_kind = astuple(mix)
            counts[run.run].append((at, sum(held_by_kind)))
            every_moment.add(at)

    moments = sorted(every_moment)
    if len(moments) < _FEWEST:
        return Html()

    jobs, none = dict[str, list[float]](), [0.0] * len(moments)
    for run in runs:
        changes, machines = zip(*counts[run.run], strict=True)
        places = np.searchsorted(changes, moments, side="right")
        held = np.array([0, *machines])[places]
        if run.wall_ended is not None:
            is_over = np.array(moments) >= run.wall_ended
            held = np.where(is_over, 0, held)
        before = jobs.get(run.job, none)
        together = map(add, before, held.tolist())
        jobs[run.job] = list(together)

    layers = list[Layer]()
    for number, (job, levels) in enumerate(jobs.items()):
        points = tuple(zip(moments, levels, strict=True))
        layers.append(Series(series_class(number), job, points))

    most = max(map(sum, zip(*jobs.values(), strict=True)))
    title = f"Machines today, at most {int(most)}"
    picture = for_both_widths(footprint, title, layers, (), (), height=200)
    keys = [(layer.class_, layer.name) for layer in layers]
    return section("Machines today", figure(picture, keys))


def _runs(
    title: str,
    heads: Sequence[ColumnHead],
    rows: Sequence[tuple[str, ...]],
    advice: Sequence[str] = (),
) -> Html:
    if not rows:
        return Html()
    return section(title, table(heads, rows), *(paragraph(line, "lead after") for line in advice))


def _run_row(
    view: RunView, usual: str, own: Sequence[str], later: Sequence[str] = ()
) -> tuple[str, ...]:
    """The cells of a run: its link, its state, bold unless it is the usual one, its `own` cells,
    and its figures.
    """
    state = view.status if view.status == usual else el("strong", view.status)
    progress = ""
    if view.clock is not None:
        progress = f"clock {view.clock:,}"
    elif view.command is not None:
        progress = f"attempt {view.command.attempt}"

    spent = spent_text(view)
    if view.money.budget is not None and later:
        budget = usd_text(usd(view.money.budget))
        spent += f" of {budget}"

    job = quote(view.job, safe="")
    link = el("a", view.job, href=f"run/{job}")
    loss, evictions = shown_loss(view.model_loss) or "", f"{view.evictions:,}"
    amount = _amount(spent, is_replayed=view.is_replayed)
    return (link, state, *own, progress, loss, evictions, *later, amount)


def _amount(text: str, *, is_replayed: bool) -> str:
    if is_replayed:
        return fragment(text, " ", el("small", "replayed"))
    return text


def _waiting(waits: Sequence[Mapping[str, Any]]) -> Html:
    if not waits:
        return Html()

    heads = (
        ColumnHead("job", is_text=True),
        ColumnHead("after", is_text=True),
        ColumnHead("begins (UTC)", is_text=True),
    )

    rows = list[tuple[str, str, str]]()
    for job in waits:
        after, begins = ", ".join(job["after"]), short_time(job["begins"] or "")
        rows.append((job["name"], after or job["state"], begins or "unknown"))
    return section("Waiting", table(heads, rows))


def _nights(nights: Sequence[Mapping[str, Any]]) -> Html:
    if not nights:
        return Html()

    problems, rows = list[Html](), list[tuple[str, ...]]()
    for job in nights:
        for problem in job["problems"]:
            text = f"{job['name']}: {problem}"
            problems.append(paragraph(text, "notice"))

        cost, outcome, last = "", "none yet", job["last_night"]
        if last:
            outcome = f"{last['night']} {last['outcome']}"
            if last.get("cost_usd") is not None:
                cost = usd_text(last["cost_usd"])
        is_replayed = bool(last and last.get("replayed"))
        amount = _amount(cost, is_replayed=is_replayed)
        rows.append((job["name"], job["next"] or "", outcome, amount))

    return section("Nights", *problems, table(_NIGHT_HEADS, rows))


_MAX_EVENTS = 100
_REPLAYED = (
    "Replayed on the local market: nothing is billed. Times are those of the market, except in the "
    "output."
)
_PRICES = "Prices per hour"
_UNKNOWN = "-"


def run_page(run: WatchedRun, output: Sequence[str], notices: Sequence[str] = ()) -> str:
    """The page of a job's latest run; `output` are the last lines that its machines printed."""
    view = run.view
    title = f"{view.run}: {view.status}"
    links = (
        el("a", "All runs", href="../"),
        el("a", "Costs of this job", href=f"../costs?job={quote(view.job)}"),
    )
    parts = [el("nav", *links), el("h1", title)]
    said = (view.unreadable, *notices, _REPLAYED if view.is_replayed else "")
    parts += [paragraph(text, "notice") for text in said if text]

    tiles = tiles_of(_tiles(view))

    money, planned = run.view.money, run.planned
    so_far = " so far" if run.view.status in ACTIVE else ""
    bars = list[tuple[str, float, str]]()
    if money.spent is not None:
        bars.append((f"Spent{so_far}", usd(money.spent), "paid"))
    if money.on_demand is not None:
        bars.append((f"Same work on demand{so_far}", usd(money.on_demand), "od"))
    if planned is not None:
        each = " an hour" if planned.assumed else " in all"
        low, high = usd_text(planned.usd_low), usd_text(planned.usd_high)
        bars.append((f"Planned{each} ({low} to {high})", planned.usd, "plan"))
    if money.budget is not None:
        bars.append(("Budget", usd(money.budget), "reliable"))

    amounts = [(name, amount, usd_text(amount), class_) for name, amount, class_ in bars]
    cost = section("Cost", versus(amounts))
    parts += [tiles, cost, _machines(run), _loss(run), _price_chart(run)]

    latest = run.events[: -_MAX_EVENTS - 1 : -1]
    heads = (ColumnHead("at (UTC)", is_text=True), ColumnHead("event", is_text=True))
    moments = times([event.at for event in latest])
    events = list(zip(moments, map(str, latest), strict=True))
    parts.append(section("Events", table(heads, events)))
    if output:
        lines = "\n".join(output)
        parts.append(section("Output", el("pre", lines)))
    return renewed_page(title, *parts, _commands(view))


def _commands(view: RunView) -> Html:
    """Forms that stop or resume the run, or set its budget. One types the command: nothing is done
    by a slip.
    """
    goes_on = view.status in ACTIVE and view.status != "stopping" and not view.is_stopping
    forms = list[Html]()
    if view.status == _INTERRUPTED and not view.is_stopping:
        forms.append(_form("Resume", f"{RESUME} {view.job}"))
    if goes_on:
        dollars_left = "what it may cost in all, in dollars"
        forms.append(_form("Set the budget", f"{RESUME} {view.job} {BUDGET}", dollars_left))

    if view.status in ACTIVE and view.status != "stopping":
        forms.append(_form("Stop", f"{STOP} {view.job}"))
    if forms:
        return section("Commands", *forms)
    return Html()


def _form(does: str, words: str, more: str = "") -> Html:
    """A form that begins the command of these words; the user adds `more` to them."""
    shown = f"{words} 20" if more else words
    how = {"autocomplete": "off", "spellcheck": "false", "required": ""}
    typed = el("input", name_="typed", **how, placeholder=shown)
    hidden = el("input", type="hidden", name_="asked", value=words)
    then = f" and {more}: " if more else ": "
    label = el("label", "Type ", el("strong", words), then, typed)
    button = el("button", does)
    return el("form", hidden, label, button, method="post", action="../do")


def _tiles(view: RunView) -> list[tuple[str, str, str]]:
    money, kinds, used = view.money, "", ""
    known = _UNKNOWN if money.on_demand is None else usd_text(usd(money.on_demand))
    saved, on_demand = percent(money.saved), f"of {known} on demand for the same work"
    if money.on_demand_unknown:
        saved, on_demand = "unknown", money.on_demand_unknown
    if view.status not in ACTIVE:
        kinds = "" if view.machines else "all returned"
    elif view.reliable:
        kinds = f"{view.reliable} reliable, {view.transient} spot"

    if view.clock is None:
        hours = (view.now - view.started) / HOUR
        progress = f"{hours:.1f} h"
        place = "" if view.command is None else command_progress(view.command)
    else:
        progress = f"{view.clock:,}"
        of_goal = "clocks" if view.goal is None else f"of {view.goal:,} clocks"
        place = f"{of_goal}, stage {view.stage}"

    if money.budget is not None:
        used = f"{percent(money.used)} of the budget"
    warned = f"{counted(view.warned, 'machine')} warned" if view.warned else ""
    return [
        ("Spent", spent_text(view), used),
        ("Saved", saved, on_demand),
        ("Machines", str(len(view.machines)), kinds),
        ("Evictions", str(view.evictions), warned),
        ("Progress", progress, place),
    ]


def _machines(run: WatchedRun) -> Html:
    view = run.view
    if not run.footprint:
        yet = " yet" if view.status in ACTIVE else ""
        return section("Machines", paragraph(f"None was rented{yet}."))

    reliable, spot, most = list[tuple[int, float]](), list[tuple[int, float]](), 0
    for count in run.footprint:
        reliable.append((count.at, float(count.reliable)))
        spot.append((count.at, float(count.transient)))
        most = max(most, count.reliable + count.transient)

    layers = list[Layer]()
    for class_, levels in (("reliable", reliable), ("spot", spot)):
        last_at, last_held = levels[-1]
        until_now = (*levels, (max(view.now, last_at), last_held))
        layers.append(Series(class_, f"{class_} machines", until_now))

    parts, marks = list[Html](), list[EvictionMark]()
    for event in run.events:
        text = str(event)
        if text.startswith(EVICTED):
            marks.append((event.at, "without" not in text, text))
    if marks:
        lead = "Triangles mark evictions; filled ones came without warning."
        parts.append(paragraph(lead, "lead"))

    title = f"Machines over time, at most {most}; {view.evictions} evicted"
    picture = for_both_widths(footprint, title, layers, (), marks, height=240, top=40)
    keys = [(layer.class_, layer.name) for layer in layers]
    return section("Machines", *parts, figure(picture, keys))


def _loss(run: WatchedRun) -> Html:
    if not run.losses:
        return Html()
    _, latest = run.losses[-1]
    now = f", {latest:.4g} now" if isfinite(latest) else ""
    picture = for_both_widths(line_chart, f"Loss by clock{now}", run.losses, height=220)
    return section("Loss by clock", figure(picture))


def _price_chart(run: WatchedRun) -> Html:
    markets = run.view.markets
    if not markets:
        return Html()

    heads = [
        ColumnHead("market", is_text=True),
        ColumnHead("machines"),
        ColumnHead("spot"),
        ColumnHead("bid"),
        ColumnHead("on demand", wide_only=True),
    ]
    any_gpus = any(line.gpus for line in markets)
    if any_gpus:
        heads += [ColumnHead("GPU busy", wide_only=True), ColumnHead("GPU memory", wide_only=True)]

    rows = list[tuple[str, ...]]()
    for line in markets:
        price = run.price_of(line)
        spot = _UNKNOWN if price is None else dollars(price)
        listed, used = dollars(line.on_demand), list[str]()
        if any_gpus:
            used = ["", ""] if line.gpus is None else [percent(share) for share in line.gpus]
        rows.append((str(line.market), machines_of(line), spot, bid_text(line), listed, *used))

    held = [line for line in markets if line.machines and not line.reliable]
    lines = [_price_line(run, number, line) for number, line in enumerate(held)]
    lines = [line for line in lines if line.data]
    if not lines:
        return section(_PRICES, table(heads, rows))

    title = f"Prices of {len(lines)} markets in percent of on demand"
    picture = for_both_widths(prices, title, lines, height=220)
    chart = figure(picture, [(line.class_, line.name) for line in lines])
    lead = paragraph("The chart shows spot prices in percent of on demand.", "lead")
    return section(_PRICES, lead, chart, table(heads, rows))


def _price_line(run: WatchedRun, number: int, line: MarketView) -> PriceLine:
    """The price of a market since the run began."""
    view, series, pieces = run.view, run.prices.get(line.market), list[tuple[int, int, float]]()
    if series is not None and line.on_demand:
        times = [*series.times.tolist(), view.now]
        for (begin, end), price in zip(pairwise(times), series.prices.tolist(), strict=True):
            begun, ended = max(begin, view.started), min(end, view.now)
            if begun < ended:
                percent_of_listed = 100 * price / line.on_demand
                pieces.append((begun, ended, percent_of_listed))
    return Series(series_class(number), str(line.market), tuple(pieces))
