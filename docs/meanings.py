"""Meanings of the fields that `--json` prints, from the columns that an answer is declared as."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from itertools import pairwise

from spotctl.show.columns import Column, Fields


def meanings(answer: str) -> dict[str, str]:
    """By key, what it means, in an answer (`module:NAME`); keys of one object stand together."""
    module, _, name = answer.partition(":")
    known = dict(_of_fields(getattr(import_module(module), name), ""))
    place = {_outermost(key): number for number, key in reversed(list(enumerate(known)))}
    return {key: known[key] for key in sorted(known, key=lambda key: place[_outermost(key)])}


def _outermost(key: str) -> str:
    return key.partition(".")[0].removesuffix("[]")


def documented(key: str, known: Iterable[str]) -> str | None:
    """The documented key that describes a key of an answer: itself, or one with `*` in place of
    names.
    """
    if key in known:
        return key
    # The longest one: names contain dots, so `throughputs.*` would stand for
    # `throughputs.c4.large.source`, too.
    return max(
        (each for each in known if "*" in each and _pattern(each).fullmatch(key)),
        key=len,
        default=None,
    )


def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(re.escape(key).replace(r"\*", r".+?"))


def _of_fields(fields: Fields, prefix: str) -> Iterator[tuple[str, str]]:
    """The keys of an object below a key, and their meanings."""
    if isinstance(fields, type):
        yield from ((_joined(prefix, key), meaning) for key, meaning in _attributes(fields))
        return
    for column in fields:
        if isinstance(column, type):
            yield from _of_fields(column, prefix)
        else:
            yield from _of_column(column, prefix)


def _of_column(column: Column[object], prefix: str) -> Iterator[tuple[str, str]]:
    """A column's key and meaning, and those of the fields of what it holds."""
    key = _joined(prefix, column.key)
    if column.meaning:
        yield key, column.meaning
    for fields, below in ((column.of, key), (column.each, f"{key}[]")):
        if fields is not None:
            yield from _of_fields(fields, below)
    if isinstance(column.named, str):
        yield f"{key}.*", column.named
    elif column.named is not None:
        yield from _of_column(replace(column.named, key="*"), key)


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    """The fields of a class with the text that follows each."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    for one, after in pairwise(definition.body):
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and isinstance(after, ast.Expr)
        ):
            meaning = " ".join(ast.literal_eval(after.value).split())
            yield one.target.id, meaning
            if ast.unparse(one.annotation).startswith(("Mapping", "dict")):
                yield f"{one.target.id}.*", meaning


def _joined(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key
