"""Elements of HTML and SVG. Any text that is not `Html` is escaped, so that no caller can forget to escape."""

from html import escape


class Html(str):
    """Markup; any other `str` is text."""

    __slots__ = ()


def el(name: str, *children: str, **attributes: object) -> Html:
    """An element. Attributes are written `class_` and `stroke_width`; those that are None are left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number_text(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{fragment(*children)}</{name}>" if children else f"<{name}{written}/>")


def fragment(*parts: str) -> Html:
    """Parts one after the other; those that are not `Html` are escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def number_text(value: object) -> str:
    """Numbers with at most one decimal, which is a tenth of a pixel; anything else as it is."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
