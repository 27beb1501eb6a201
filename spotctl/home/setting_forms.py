"""Parsers of single settings; each raises ValueError with what the value must be."""


def text(value: object) -> str | None:
    """A string; None if it is empty."""
    if not isinstance(value, str):
        raise ValueError("a string in quotes")
    return value or None


def flag(value: object) -> bool:
    """True or false, also as text from an environment variable."""
    word = str(value).lower()
    if word not in {"true", "false"}:
        raise ValueError("true or false")
    return word == "true"
