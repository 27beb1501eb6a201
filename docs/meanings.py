"""Meanings of the fields that `--json` prints, from the functions and dataclasses that write them.

A comment `#: meaning` stands behind each key of a dict that a function writes, or above it; in a dataclass, a text
follows each field. `#: meaning -> name` says that another function or class writes the value, and `, each -> name` that
it writes the elements of a list. Below `Fields:`, the docstring of a function lists what it writes in another way, one
`key: meaning` a line. There, `*` stands for names that are data, `key[] -> name` says who writes the elements of `key`,
and `-> name` who writes further keys of the same object.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from typing import Any

_FIELD = re.compile(r"(?P<key>[\w.\[\]*-]+): +(?P<meaning>.+)")
_OTHER = re.compile(r"(?:(?P<key>[\w.\[\]*-]+) )?-> (?P<name>[\w.:]+)")


def meanings(writer: str) -> dict[str, str]:
    """By key, what it means, in what a writer (`module:name`) writes; keys of one object stand together."""
    known = dict(_written(_named(writer), ""))
    place = {_outermost(key): number for number, key in reversed(list(enumerate(known)))}
    return {key: known[key] for key in sorted(known, key=lambda key: place[_outermost(key)])}


def _outermost(key: str) -> str:
    return key.partition(".")[0].removesuffix("[]")


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
        for column in writer:
            yield from _declared(column, prefix)
        return
    if inspect.isclass(writer):
        yield from ((_joined(prefix, key), meaning) for key, meaning in _attributes(writer))
    if inspect.isfunction(writer):
        for key, text in _commented(writer):
            meaning, _, other = text.partition(" -> ")
            inner = _joined(prefix, key)
            yield inner, meaning.removesuffix(", each")
            if other:
                yield from _written(_other(writer, other), f"{inner}[]" if meaning.endswith(", each") else inner)
    for line in _lines(inspect.getdoc(writer) or ""):
        if other := _OTHER.fullmatch(line):
            yield from _written(_other(writer, other["name"]), _joined(prefix, other["key"] or ""))
        elif field := _FIELD.fullmatch(line):
            yield _joined(prefix, field["key"]), field["meaning"]
        else:
            raise SystemExit(f"{writer.__module__}.{writer.__qualname__}: not a field: {line!r}")


def _declared(column: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """A column's key and meaning, and those of the fields of what it holds."""
    if isinstance(column, type):
        yield from _written(column, prefix)
        return
    key = _joined(prefix, column.key)
    if column.meaning:
        yield key, column.meaning
    for fields, below in ((column.of, key), (column.each, f"{key}[]")):
        if fields is not None:
            yield from _written(fields, below)
    if isinstance(column.named, str):
        yield f"{key}.*", column.named
    elif column.named is not None:
        yield from _declared(replace(column.named, key="*"), key)


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
            meaning = " ".join(ast.literal_eval(after.value).split())
            yield one.target.id, meaning
            if ast.unparse(one.annotation).startswith(("Mapping", "dict")):
                yield f"{one.target.id}.*", meaning


def _commented(function: Any) -> Iterator[tuple[str, str]]:
    """The keys of the dicts that a function writes with the comments behind them, or above them."""
    source = textwrap.dedent(inspect.getsource(function))
    comments = {number: line.partition("#: ")[2] for number, line in enumerate(source.splitlines(), 1) if "#: " in line}
    for key, number in _keys_below(ast.parse(source), ""):
        # What stands behind another key, above this one, is about that key.
        first = number
        while first - 1 in comments and source.splitlines()[first - 2].lstrip().startswith("#: "):
            first -= 1
        texts = [comments[line] for line in range(first, number + 1) if line in comments]
        if texts:
            yield key, " ".join(texts)


def _keys_below(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    """The keys of all dicts in a piece of code, below the key of which it is the value, with their lines."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            named = isinstance(key, ast.Constant) and isinstance(key.value, str)
            inner = _joined(prefix, key.value) if named else prefix
            if named:
                yield inner, key.lineno
            yield from _keys_below(value, inner)
        return
    inner = f"{prefix}[]" if prefix and isinstance(node, ast.List | ast.ListComp) else prefix
    for child in ast.iter_child_nodes(node):
        yield from _keys_below(child, inner)


def _joined(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix and key else prefix or key


def _other(writer: Any, name: str) -> Any:
    return _named(name) if ":" in name else getattr(sys.modules[writer.__module__], name)


def _named(name: str) -> Any:
    module, _, inner = name.partition(":")
    return attrgetter(inner)(import_module(module))
