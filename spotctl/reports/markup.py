"""Pieces of the page: every word that comes from outside is escaped here, and nowhere else is HTML written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from spotctl.reports.charts.svg import Frame, legend


@dataclass(frozen=True, slots=True)
class Head:
    """A column: its name, whether it holds words, and whether a phone leaves it out."""

    name: str
    is_text: bool = False
    is_less: bool = False

    @property
    def class_(self) -> str:
        """Its classes as an attribute."""
        return _class(" ".join(name for name, holds in (("text", self.is_text), ("less", self.is_less)) if holds))


def table(heads: Sequence[Head], rows: Sequence[Sequence[str]], foot: Sequence[str] = (), caption: str = "") -> str:
    """A table of words; one that is too wide for a phone is moved under its edge, and the page is not."""
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col"{head.class_}>{escape(head.name)}</th>' for head in heads)
    body = "".join(f"<tr>{_cells(heads, row)}</tr>" for row in rows)
    last = f"<tfoot><tr>{_cells(heads, foot)}</tr></tfoot>" if foot else ""
    whole = f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{last}</table>"
    return f'<div class="scroll">{whole}</div>'


def _cells(heads: Sequence[Head], row: Sequence[str]) -> str:
    return "".join(f"<td{head.class_}>{escape(cell)}</td>" for head, cell in zip(heads, row, strict=True))


def both(draw: Callable[[Frame], str], height: int = 280, top: int = 16) -> str:
    """A chart as it is on paper and on a screen, and as it is on a phone; the page shows the one that fits."""
    return draw(Frame(960, height, top=top)) + draw(Frame(340, max(height - 60, 180), left=50, right=4, top=top))


def figure(picture: str, keys: Sequence[tuple[str, str]] = (), figures: str = "") -> str:
    """A chart with what its colours mean, and its figures as a table for whoever wants or needs them."""
    more = f"<details><summary>Figures</summary>{figures}</details>" if figures else ""
    return f"<figure>{legend(keys) if keys else ''}{picture}{more}</figure>"


def section(title: str, *children: str, is_long: bool = False) -> str:
    """A part of the page under a heading."""
    return f"<section{_class('long' if is_long else '')}><h2>{escape(title)}</h2>{''.join(children)}</section>"


def paragraph(words: str, class_: str = "") -> str:
    """A paragraph of words."""
    return f"<p{_class(class_)}>{escape(words)}</p>"


def subheading(words: str, meta: str = "") -> str:
    """A heading within a section, with what is said beside it."""
    beside = f'<span class="meta">{escape(meta)}</span>' if meta else ""
    return f"<h3>{escape(words)}{beside}</h3>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
