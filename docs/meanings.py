"""Meanings of the fields that `--json` prints, from the docstrings of the functions and dataclasses that write them.

The docstring of a function lists them below `Fields:`, one `key: meaning` a line; in a dataclass, a text follows each
field. `*` stands for names that are data. `key[] -> name` says that another function or class writes the elements of
`key`, and `-> name` that it writes further keys of the same object.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from typing import Any

_FIELD = re.compile(r"(?P<key>[\w.\[\]*-]+): +(?P<meaning>.+)")
_OTHER = re.compile(r"(?:(?P<key>[\w.\[\]*-]+) )?-> (?P<name>[\w.:]+)")


def meanings(writer: str) -> dict[str, str]:
    """By key, what it means, in what a writer (`module:name`) writes."""
    return dict(_written(_named(writer), ""))


def documented(key: str, known: Iterable[str]) -> str | None:
    """The documented key that describes a key of an answer: itself, or one with `*` in place of names."""
    if key in known:
        return key
    # The longest one: names contain dots, so `throughputs.*` would stand for `throughputs.c4.large.source`, too.
    return max((each for each in known if "*" in each and _pattern(each).fullmatch(key)), key=len, default=None)


def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(re.escape(key).replace(r"\*", r".+?"))


def _written(writer: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """What a function, a dataclass or a list of columns writes below a key: the keys and their meanings."""
    if isinstance(writer, tuple):
        yield from ((_joined(prefix, one.name), one.meaning) for one in writer)
        return
    if inspect.isclass(writer):
        yield from ((_joined(prefix, key), meaning) for key, meaning in _attributes(writer))
    for line in _lines(inspect.getdoc(writer) or ""):
        if other := _OTHER.fullmatch(line):
            yield from _written(_other(writer, other["name"]), _joined(prefix, other["key"] or ""))
        elif field := _FIELD.fullmatch(line):
            yield _joined(prefix, field["key"]), field["meaning"]
        else:
            raise SystemExit(f"{writer.__module__}.{writer.__qualname__}: not a field: {line!r}")


def _lines(text: str) -> Iterator[str]:
    """The lines below `Fields:`, each with the lines that continue it."""
    _, _, block = text.partition("Fields:\n")
    joined: list[str] = []
    for line in block.partition("\n\n")[0].splitlines():
        if line.startswith("        "):
            joined[-1] += f" {line.strip()}"
        else:
            joined.append(line.strip())
    return iter(joined)


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    """The fields of a class with the text that follows each."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    for one, after in pairwise(definition.body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(after, ast.Expr):
            yield one.target.id, " ".join(ast.literal_eval(after.value).split())


def _joined(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix and key else prefix or key


def _other(writer: Any, name: str) -> Any:
    return _named(name) if ":" in name else getattr(sys.modules[writer.__module__], name)


def _named(name: str) -> Any:
    module, _, inner = name.partition(":")
    return attrgetter(inner)(import_module(module))
