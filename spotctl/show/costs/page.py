"""A cost report as a self-contained HTML page: no scripts, fonts or pictures from elsewhere."""

from collections.abc import Sequence
from dataclasses import replace

from pricing_data.units import HOUR, counted, usd_text
from spotctl.log.ledger.rows import usd
from spotctl.show.columns import UNKNOWN
from spotctl.show.costs import columns as fmt
from spotctl.show.costs.charts import cumulative, share_bar, stacked_bars
from spotctl.show.costs.columns import HTML_GROUPS, texts
from spotctl.show.costs.cost import Report
from spotctl.show.costs.markup import (
    ColumnHead,
    Html,
    document,
    el,
    figure,
    for_both_widths,
    fragment,
    heads_of,
    paragraph,
    section,
    table,
    tiles_of,
    versus,
)
from spotctl.show.costs.money import MarketCost, bars_of, cumulative_of, markets_of, parts_of
from spotctl.show.costs.page_runs import (
    machines_section,
    plan_section,
    prices_section,
    runs_section,
    trend_section,
)
from spotctl.show.costs.periods import By
from spotctl.show.phrases import bound_of

_LOST_TIME = "Time lost to evictions, start-up and waiting"
"""Three of the steps. Of all machines, their parts have rows of their own, whose amounts are
others."""

_TERMS = (
    ("Paid", "Charges under the provider's billing rule, minus refunds."),
    ("On demand", "Cost of the same work on on-demand machines at the list price."),
    (
        "Refunded",
        "Charged at first, then refunded because the provider evicted the machine within a free "
        "hour.",
    ),
    (
        "Start-up",
        "From the rental of a machine until it first worked: it boots, and loads data and code.",
    ),
    (
        "Redone work",
        "Work that was lost in evictions and done again. Lost work is all that was paid for it, "
        "minus refunds.",
    ),
    (
        "Waiting",
        "Time in which machines were ready without work: before the others were, or after the end.",
    ),
    (
        "Rest of paid hours",
        "Paid for by the provider's billing rule, after the machine was returned.",
    ),
    (
        _LOST_TIME,
        "In the steps: start-up, redone work, waiting, and time at work beyond what undisturbed "
        "machines would have"
        " needed. Machines of failed runs and reliable machines are in steps of their own.",
    ),
)
_MANY_ROWS = 12


def html(report: Report, *above: Html) -> str:
    """The page, with parts `above` its head, as the links of `spotctl ui`."""
    report = replace(report, rows=tuple(report.rows))
    sections = [paragraph(fmt.span_of(report))]
    if report.runs:
        markets = markets_of(report)
        sections = [
            _tiles(report),
            _uses(report),
            _saving(report),
            _over_time(report, markets),
            _markets(report, markets),
            _groups(report),
            machines_section(report),
            prices_section(report, markets),
            plan_section(report),
            trend_section(report),
            runs_section(report),
        ]

    terms = list[Html]()
    for name, meaning in _TERMS:
        terms += [el("dt", name), el("dd", meaning)]
    sections.append(section("Terms", el("dl", *terms, class_="terms")))

    rows, settled = len(report.rows), sum(row.settled for row in report.rows)
    made = fmt.minute(report.made_at)
    generated = (
        f"Generated on {made} from {rows:,} ledger rows, {settled:,} of them settled. Amounts are "
        "summed exactly and rounded only for display."
    )
    foot = el("footer", paragraph(generated))
    main = el("main", *above, _head(report), *sections, foot)
    title = f"Cost of {fmt.subject(report)}, {_period(report)}"
    return document(title, main)


def _period(report: Report) -> str:
    first = min((run.wall_began for run in report.runs), default=report.made_at)
    last = max((run.wall_ended or report.made_at for run in report.runs), default=report.made_at)
    begin, end = fmt.day(first), fmt.day(last)
    if begin == end:
        return begin
    return f"{begin} to {end}"


def _head(report: Report) -> Html:
    whole, digits = report.whole, fmt.digits_of(report)
    jobs = sorted({run.job for run in report.runs})
    title = ", ".join(jobs) or "No runs"
    if len(jobs) > fmt.MAX_NAMED:
        title = counted(len(jobs), "job")

    eyebrow = f"Cost report · {_period(report)} · {fmt.counted_runs(report)}"
    parts = [paragraph(eyebrow, "eyebrow"), el("h1", title), _verdict(report, digits)]
    if whole.on_demand and not whole.is_least:
        verb, paid = fmt.paid(report).capitalize(), whole.total
        listed = whole.on_demand
        amounts = [
            (verb, paid, fmt.money(paid, digits), "paid"),
            ("On demand", listed, fmt.money(listed, digits), "od"),
        ]
        parts.append(versus(amounts))

    notices = [f"{doubt[0].upper()}{doubt[1:]}." for doubt in fmt.doubts(report)]
    if report.is_replayed:
        notices.append(
            "These runs were on the local market, which replays recorded or synthetic prices and "
            "evictions. No real"
            " money was spent, and no amount on this page was billed. Dates of runs are this "
            "computer's; times in charts are the market's."
        )

    remark = fmt.left_out(report)
    if remark:
        notices.append(remark)
    if whole.running:
        running = "1 run is" if whole.running == 1 else f"{whole.running} runs are"
        unsettled = fmt.money(whole.unsettled, digits)
        notices.append(f"{running} still running (*): {unsettled} of the total may change.")

    parts += [paragraph(notice, "notice") for notice in notices]
    return el("header", *parts)


def _verdict(report: Report, digits: int) -> Html:
    whole = report.whole
    amount, verb = fmt.total(whole, digits), fmt.paid(report)
    so_far = " so far" if whole.running else ""
    not_billed = ", not billed" if report.is_replayed else ""
    paid = f"{amount} {verb}{so_far}{not_billed}."
    if whole.loss:
        lost = fmt.money(whole.loss, digits)
        paid += f" Of this, {lost} was lost in runs that failed."

    if whole.on_demand_unknown:
        unknown = f"{paid} What this saved is unknown: {whole.on_demand_unknown}."
        return paragraph(unknown, "verdict")
    if whole.saved_pct is None or whole.saved is None or whole.on_demand is None:
        return paragraph(paid, "verdict")

    if whole.saved >= 0:
        amount, share = fmt.money(whole.saved, digits), fmt.percent(whole.saved_pct)
        saved = el("strong", f"{amount} saved, {share}")
    else:
        share = fmt.percent(-whole.saved_pct)
        saved = el("strong", f"{share} more expensive", class_="more")

    listed = fmt.money(whole.on_demand, digits)
    text = fragment(f"{paid} On demand, the same work would have cost {listed}: ", saved, ".")
    return paragraph(text, "verdict")


def _tiles(report: Report) -> Html:
    whole, digits = report.whole, fmt.digits_of(report)
    least, hours = bound_of(is_least=whole.is_least, is_most=False), whole.machine_micros / HOUR
    hourly, rate = "", "no machine was evicted"
    if hours and not whole.is_least:
        each = usd(whole.total) / hours
        hourly = f"${each:.4f} each"
    if whole.evictions:
        between = hours / whole.evictions
        rate = f"one per {between:.1f} machine-hours"

    machine_hours, evictions = fmt.hours(whole.machine_micros), fmt.whole_number(whole.evictions)
    tiles = [
        ("Machine-hours", f"{least}{machine_hours}", hourly),
        ("Evictions", f"{least}{evictions}", rate),
    ]
    tiles.append(("Refunded", fmt.money(whole.free, digits), "charged and refunded"))
    if whole.usd_per_work is not None:
        units = f"{fmt.whole_number(whole.work)} clocks in total"
        tiles.append(("Per clock", fmt.per_work(whole.usd_per_work), units))

    if whole.sent is not None and whole.received is not None:
        received = f"{fmt.gigabytes(whole.received)} received{fmt.counted_in(whole)}"
        tiles.append(("Traffic sent", fmt.gigabytes(whole.sent), received))

    return tiles_of(tiles)


def _uses(report: Report) -> Html:
    parts = parts_of(report.whole)
    total, digits = usd(report.whole.total), fmt.digits_of(report)
    of_parts, keys = sum(part.data for part in parts), list[tuple[str, str]]()
    rows, alts = list[tuple[str, str, str]](), list[str]()
    for part in parts:
        if part.data > 0:
            keys.append((part.class_, part.name))
        if part.data or part.class_ == "working":
            value = usd_text(part.data, digits)
            share = f"{part.data / total:.1%}" if total > 0 else ""
            rows.append((part.name, value, share))
            alts.append(f"{part.name} {value} {share}")

    heads = (
        ColumnHead("paid for", is_text=True),
        ColumnHead(fmt.paid(report)),
        ColumnHead("share"),
    )

    foot = ("total", fmt.total(report.whole, digits), "")
    alt = f"Cost by what machines did: {'; '.join(alts)}"
    picture = figure(share_bar(alt, parts), keys)
    working_share = f"{parts[0].data / of_parts:.1%}" if of_parts > 0 else "Nothing"
    lead = f"{working_share} of the cost bought work that was kept."
    if report.whole.free:
        free = fmt.money(report.whole.free, digits)
        lead += f" Another {free} was charged and refunded."

    shown = table(heads, rows, foot)
    return section("Where the money went", paragraph(lead, "lead"), picture, shown)


def _saving(report: Report) -> Html:
    """The steps from the on-demand cost to what was paid, without those that changed nothing."""
    whole, digits = report.whole, fmt.digits_of(report)
    if not whole.on_demand or whole.is_least:
        return Html()

    merged, lost_time = dict[str, int](), f"{_LOST_TIME[0].lower()}{_LOST_TIME[1:]}"
    for name, amount in whole.steps:
        shown = lost_time if name in ("start-up", "waiting", "redone work") else name
        merged[shown] = merged.get(shown, 0) - amount

    rows = [("on demand, for the same work", fmt.money(whole.on_demand, digits))]
    rows += [(name, fmt.money(amount, digits)) for name, amount in merged.items() if amount]
    heads, paid = (ColumnHead("step", is_text=True), ColumnHead("cost")), fmt.paid(report)
    foot = (paid, fmt.money(whole.total, digits))
    return section(f"From on demand to {paid}", table(heads, rows, foot))


def _over_time(report: Report, markets: Sequence[MarketCost]) -> Html:
    title = "Cost over time, by market"
    if not report.rows:
        return section(title, paragraph("Nothing was paid."))

    paid = fmt.paid(report)
    keys = list(dict.fromkeys((cost.class_, cost.name) for cost in markets))
    if len(report.runs) == 1:
        layers = cumulative_of(report.rows, markets)
        total = fmt.total(report.whole, 2)
        alt = f"Cumulative cost of {report.runs[0].run}, {total} in total"
        lead = paragraph(f"Amount {paid} up to each moment of the run, net of refunds.", "lead")
        picture = for_both_widths(cumulative, alt, layers)
        return section(title, lead, figure(picture, keys))

    bars, unit = bars_of(report, markets)
    alt = f"Cost of each {unit}, by market: {len(bars)} bars"
    picture = for_both_widths(stacked_bars, alt, bars)
    each = "a month, by the provider's clock"
    if unit == "run":
        each = "a run, at the date on which it began by this computer's clock"
    lead = paragraph(f"Each bar is {each}.", "lead")
    heads = ColumnHead(unit, is_text=True), ColumnHead(paid)
    figures = table(heads, [(bar.name, f"${bar.value:,.4f}") for bar in bars])
    return section(title, lead, figure(picture, keys, figures))


def _markets(report: Report, markets: Sequence[MarketCost]) -> Html:
    digits, paid = fmt.digits_of(report), fmt.paid(report)
    heads = [
        ColumnHead("market", is_text=True),
        ColumnHead("machine-hours", wide_only=True),
        ColumnHead(f"{paid} per hour"),
        ColumnHead("on demand per hour", wide_only=True),
        ColumnHead("evictions"),
        ColumnHead("refunded", wide_only=True),
        ColumnHead("on demand", wide_only=True),
        ColumnHead(paid),
    ]

    rows = list[list[str]]()
    for cost in markets:
        row = [str(cost.market), fmt.hours(cost.machine_micros)]
        for price in (cost.price, cost.listed):
            hourly = UNKNOWN if price is None else f"${price:.4f}"
            row.append(hourly)
        row.append(fmt.whole_number(cost.evictions))
        amounts = (cost.refunded, cost.on_demand, cost.paid)
        row += [fmt.money(amount, digits) for amount in amounts]
        rows.append(row)

    return section("Markets", table(heads, rows))


def _groups(report: Report) -> Html:
    """The requested grouping, unless another part of the page shows it already."""
    is_only_job = report.by == (By.JOB,) and len(report.groups) == 1
    if is_only_job or report.by in ((By.MARKET,), (By.RUN,)):
        return Html()

    digits = fmt.digits_of(report)
    wide_only = "runs evictions lost_work_usd on_demand_usd"
    heads = [ColumnHead(by.value, is_text=True) for by in report.by]
    heads += heads_of(HTML_GROUPS, report, wide_only=wide_only)

    rows = list[list[str]]()
    for group in report.groups:
        row = list(group.key.values())
        if group.figures.running:
            row[-1] += fmt.RUNNING_MARK
        rows.append([*row, *texts(HTML_GROUPS, group.figures, digits)])

    parts, remark = list[Html](), fmt.clock(report)
    if remark:
        sentence = f"{remark[0].upper()}{remark[1:]}."
        parts.append(paragraph(sentence, "lead"))

    names = " and ".join(by.value for by in report.by)
    return section(f"By {names}", *parts, table(heads, rows), is_long=len(rows) > _MANY_ROWS)
