"""Price histories as pictures: PNG, SVG, or a self-contained HTML page."""

import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from pricing_data.atomic_write import atomic_write
from pricing_data.series import PriceSeries, holes
from pricing_data.stats import MarketStats
from pricing_data.units import NANOS_PER_DOLLAR, format_time, to_usd
from spotctl.home.errors import BadRequest
from spotctl.home.printable import printable
from spotctl.show.plots import BLUE, INK, RED, check_picture, panels, save_plot
from spotctl.show.terminal import against_on_demand, dollars, market_name, needs_log_scale, percent

SUFFIXES = (".png", ".svg", ".html")
MAX_MARKETS = 12
_SPOT, _ON_DEMAND, _ABOVE = BLUE, INK, RED

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Spot prices</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }}
svg {{ width: 100%; min-width: 40rem; height: auto; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; width: 100%; }}
th, td {{ text-align: right; padding: .3rem 0 .3rem .9rem; border-bottom: 1px solid #6e768155; white-space: nowrap; }}
th {{ white-space: normal; vertical-align: bottom; }}
th:first-child, td:first-child {{ text-align: left; white-space: normal; min-width: 9rem; padding-left: 0; }}
</style></head><body>
<h1>Spot prices</h1>
<p>{span}</p>
<div class="wide">{chart}</div>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>
</body></html>
"""


def draw(histories: Sequence[tuple[PriceSeries, MarketStats]], path: Path) -> None:
    """Draws each market in its own panel over a common time axis; the format follows from the
    file's suffix.
    """
    kind = path.suffix.lower()
    check_picture(path, SUFFIXES)
    if len(histories) > MAX_MARKETS:
        raise BadRequest(
            f"plot: {len(histories)} markets are too many for one picture; select at most "
            f"{MAX_MARKETS}"
        )

    figure = _figure(histories)
    with atomic_write(path) as out:
        if kind == ".html":
            with mpl.rc_context({"svg.fonttype": "none"}):
                drawing = io.StringIO()
                save_plot(figure, drawing, "svg")

            chart = drawing.getvalue()
            first = min(series.times[0] for series, _ in histories)
            last = max(series.times[-1] for series, _ in histories)
            rows = list[dict[str, str]]()
            for _, stats in histories:
                above, listed = stats.hours_above_on_demand, stats.on_demand
                row = {
                    "market": str(market_name(stats.market)),
                    "mean": dollars(stats.mean),
                    "median": dollars(stats.median),
                    "highest": dollars(stats.highest),
                    "on-demand": dollars(listed.price) if listed else "-",
                    "discount": percent(stats.discount),
                    "changes/day": f"{stats.changes_per_day:.1f}",
                    "hours above on-demand": "-" if above is None else f"{above:,.1f}",
                    "observed": percent(stats.coverage),
                }
                rows.append(row)

            body = ""
            for row in rows:
                cells = ""
                for cell in row.values():
                    text = escape(printable(cell))
                    cells += f"<td>{text}</td>"
                body += f"<tr>{cells}</tr>"

            svg = chart[chart.index("<svg") :]
            head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
            since, until = format_time(int(first)), format_time(int(last))
            span = f"From {since} to {until}, dollars per hour."
            page = _PAGE.format(span=span, chart=svg, head=head, body=body)
            out.write_text(page, encoding="utf-8")
        else:
            save_plot(figure, out, kind[1:])


def _figure(histories: Sequence[tuple[PriceSeries, MarketStats]]) -> Figure:
    figure, rows = panels(11, 0.6 + 2.2 * len(histories), len(histories), sharex=True)
    for axes, (series, stats) in zip(rows, histories, strict=True):
        gaps = np.array(holes(series.watched or ()), dtype=np.int64).reshape(-1, 2)
        begins, ends = gaps[:, 0], gaps[:, 1]
        each_time = series.times[:, None]
        is_inside = (each_time > begins) & (each_time < ends)
        outside = ~np.any(is_inside, axis=1)
        # No price is drawn from the start of a hole to its end, so that the hole is visible.
        after_gaps = [series.price_at(int(end)) for end in ends]
        unknown = np.full(len(gaps), np.nan)
        drawn_times = np.concatenate((series.times[outside], begins, ends))
        nanos = np.concatenate((series.prices[outside], unknown, after_gaps))
        order = np.argsort(drawn_times, kind="stable")
        times = drawn_times[order].astype("datetime64[us]")
        prices = nanos[order] / NANOS_PER_DOLLAR

        axes.step(times, prices, where="post", color=_SPOT, linewidth=1, label="spot")
        if stats.on_demand is not None:
            level = to_usd(stats.on_demand.price)
            above = prices > level
            axes.axhline(level, color=_ON_DEMAND, linestyle="--", linewidth=1, label="on-demand")
            axes.fill_between(
                times, prices, level, where=above, step="post", color=_ABOVE, alpha=0.3, linewidth=0
            )
        if needs_log_scale(stats.lowest, stats.highest):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("")
        else:
            axes.set_ylim(bottom=0)

        title = f"{market_name(stats.market)}: mean {dollars(stats.mean)}"
        if stats.discount is not None:
            title += f", {against_on_demand(stats.discount)}"
        if stats.coverage < 1:
            title += f", observed {percent(stats.coverage)} of the time"
        axes.set_ylabel("$ per hour")
        written = title.replace("$", r"\$")
        axes.set_title(written, loc="left", fontsize=10)
        axes.grid(visible=True, alpha=0.25)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), fontsize=8, ncols=2, frameon=False)

    lowest = rows[-1]
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    lowest.xaxis.set_major_locator(locator)
    lowest.xaxis.set_major_formatter(formatter)
    lowest.set_xlabel("time (UTC)")
    return figure
