"""Lines of `config.toml` that a command adds and takes away, next to what people have written
there."""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from pricing_data.atomic_write import atomic_write
from spotctl.home.errors import BadSettings


def added(path: Path, table: str, key: str, value: str | Sequence[str]) -> None:
    """Adds a text or a list of texts to a table, which is made if it is missing.

    BadSettings: the file cannot be read, or has the key."""
    text = path.read_text() if path.exists() else ""
    line, head = _line(key, value), re.search(rf"^\[{re.escape(table)}\][^\n]*\n?", text, re.M)
    if head is not None:
        above = text[: head.end()].rstrip("\n") + "\n"
        text = f"{above}{line}\n{text[head.end() :]}"
    else:
        text = f"{text.rstrip()}\n\n[{table}]\n{line}\n".lstrip()
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path}: {line!r} cannot be added: {error}; write it by hand") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as new:
        new.write_text(text)


def taken_away(path: Path, table: str, key: str, value: str | Sequence[str]) -> None:
    """Removes the line that `added` has written to a table, if it is still there."""
    text = path.read_text() if path.exists() else ""
    above = rf"^\[{re.escape(table)}\][^\n]*\n(?:(?!\[)[^\n]*\n)*?"
    line = re.escape(_line(key, value))
    kept = re.sub(rf"({above}){line}(?:\n|\Z)", r"\1", text, count=1, flags=re.M)
    if kept != text:
        with atomic_write(path) as new:
            new.write_text(kept)


def _line(key: str, value: str | Sequence[str]) -> str:
    return f"{key} = {json.dumps(value)}"
