"""An HTML page as a whole: its head, the style sheet, and nothing from elsewhere."""

from functools import cache
from importlib.resources import files

from spotctl.show.costs.html import Html, el

_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
{title}
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def document(title: str, body: Html) -> str:
    """A page with the style of cost reports."""
    return _DOCUMENT.format(title=el("title", title), style=_style(), body=body)


@cache
def _style() -> str:
    return files("spotctl.show.costs").joinpath("page.css").read_text(encoding="utf-8")
