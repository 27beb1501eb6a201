"""The variables that the code of a training loop can reach, as far as they can be compared.

An iteration that is computed twice must leave them alike, or a node that takes over would compute
something else.
"""

from __future__ import annotations

import ast
import linecache
import operator
import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, singledispatch
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from agileml.user_code import is_own

_MAX_OBJECTS = 200_000
"""Objects that are looked at: a dataset in a list has more, and is not what a loop changes."""

_MAX_ITEMS = 1000
"""Items of a list that are looked at, at each end; its length is, always."""

_MAX_BYTES = 1 << 26
"""Larger arrays are compared by some of their numbers."""

_HOLDING = {"collections", "types", "argparse", "functools", "__main__"}
"""Modules of Python whose objects hold what users put into them."""

Named = tuple[str, str, Any]
"""An object with its own name, such as that of an attribute, and what it is called in messages."""

Looked = tuple[object, Iterable[Named]]
"""The comparable part of an object, and the objects that it holds."""


class LoopVariables:
    """The variables of some moment: locals of the loop and of its callers, globals of the user's
    files, and what these hold."""

    def __init__(self, values: Mapping[str, list[object]]) -> None:
        self._values = values

    @classmethod
    def of(
        cls,
        frames: Sequence[types.FrameType],
        known: Iterable[object],
        ignored: frozenset[str],
        overwritten: frozenset[str],
    ) -> LoopVariables:
        """Finds all that frames of the user's code can reach, the loop's and its callers', without
        `known` objects and `ignored` names, and without what the loop's frame has `overwritten`."""
        waiting: deque[Named] = deque()
        for frame in frames:
            code = frame.f_code
            is_module = frame.f_locals is frame.f_globals
            file = Path(code.co_filename).name
            here = _of_scope(frame.f_locals, file if is_module else code.co_name)
            waiting += (
                named for named in here if frame is not frames[0] or named[0] not in overwritten
            )
            if not is_module:
                waiting += _of_scope(frame.f_globals, file)

        values: dict[str, list[object]] = {}
        # Objects that are made by looking stay until the end, so that no other gets their address.
        seen = {id(each) for each in known}
        alive = list[object]()
        while waiting and len(alive) < _MAX_OBJECTS:
            name, text, value = waiting.popleft()
            if name in ignored or id(value) in seen:
                continue
            if not isinstance(value, bool | int | float | complex | str | bytes | None):
                seen.add(id(value))
                alive.append(value)
            comparable, held = _look(value, text)
            values.setdefault(text, []).append(comparable)
            waiting.extend(held)

        return cls(values)

    def unlike(self, other: LoopVariables) -> tuple[str, ...]:
        """The variables that are not as in the other, as they are called in messages."""
        mine = self._values
        theirs = other._values
        return tuple(text for text in {**mine, **theirs} if mine.get(text) != theirs.get(text))


def _of_scope(scope: Mapping[str, object], of: str) -> Iterator[Named]:
    yield from (
        (name, f"{name!r} of {of}", value)
        for name, value in dict(scope).items()
        if name[:2] != "__"
    )


# -- what an object holds --------------------------------------------------------------------------


def _look(value: Any, text: str) -> Looked:  # noqa: ANN401
    """An object: a value itself, the items of a container, or what its kind holds."""
    held: Iterable[Named] = ()
    comparable: object = None
    match value:
        case bool() | int() | float() | complex() | str() | bytes() | None:
            comparable = repr(value)
        case dict():
            comparable = len(value)
            some = [(key, value[key]) for key in list(value)[:_MAX_ITEMS]]
            held = [(str(key), f"{text}[{key!r}]", inner) for key, inner in some]
        case list() | tuple() | deque():
            items = list(value)
            comparable = len(items)
            if len(items) > 2 * _MAX_ITEMS:
                items = items[:_MAX_ITEMS] + items[-_MAX_ITEMS:]
            held = [("", f"{text}[{number}]", inner) for number, inner in enumerate(items)]
        case set() | frozenset():
            plain = [item for item in value if isinstance(item, str | int | float)]
            comparable = frozenset(map(repr, plain))
        case types.GeneratorType():
            frame = value.gi_frame
            comparable = frame and frame.f_lasti
            held = _of_scope(frame.f_locals, text) if frame else ()
        case types.MethodType() | partial():
            comparable = type(value).__name__
            is_method = isinstance(value, types.MethodType)
            names = ("__self__", "__func__") if is_method else ("func", "args", "keywords")
            held = [("", text, getattr(value, name)) for name in names]
        case _:
            return _look_further(value, text)
    return comparable, held


@singledispatch
def _look_further(value: Any, text: str) -> Looked:  # noqa: ANN401
    """An object of any other kind: its attributes, and where an iterator is."""
    kind = type(value)
    module = type(value).__module__.partition(".")[0]
    place: object = None
    if hasattr(value, "__next__"):
        place = repr(value) if module == "itertools" else operator.length_hint(value, -1)
    if module in sys.stdlib_module_names and module not in _HOLDING:
        return (kind.__name__, place), ()

    slots = [
        slot
        for each in kind.__mro__
        for slot in getattr(each, "__slots__", ())
        if isinstance(slot, str)
    ]

    held = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)} | getattr(
        value, "__dict__", {}
    )
    return (kind.__name__, place), [
        (name, f"{text}, attribute {name!r}", inner) for name, inner in held.items()
    ]


@_look_further.register(torch.Tensor)
def _tensor(value: torch.Tensor, text: str) -> Looked:
    if value.layout != torch.strided or value.is_meta or value.is_quantized or not value.numel():
        return (value.shape, value._version), ()
    return _array(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy(), text)


@_look_further.register(np.ndarray)
def _array(value: Any, _: str) -> Looked:  # noqa: ANN401
    if value.dtype.hasobject:
        return value.shape, ()
    numbers = np.ascontiguousarray(value).reshape(-1)[:: 1 + value.nbytes // _MAX_BYTES]
    return (value.shape, crc32(numbers.tobytes())), ()


@_look_further.register(
    np.random.Generator
    | np.random.BitGenerator
    | np.random.RandomState
    | random.Random
    | torch.Generator
)
def _chance(value: Any, _: str) -> Looked:  # noqa: ANN401
    """A generator of random numbers."""
    value = getattr(value, "bit_generator", getattr(value, "_bit_generator", value))
    if isinstance(value, torch.Generator):
        return crc32(value.get_state().numpy().tobytes()), ()
    return repr(value.getstate() if isinstance(value, random.Random) else value.state), ()


@_look_further.register
def _function(value: types.FunctionType, text: str) -> Looked:
    if not is_own(value.__code__.co_filename):
        return value.__qualname__, ()

    closure = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
    return value.__qualname__, [
        *(
            (name, f"{name!r} of {value.__qualname__}", cell.cell_contents)
            for name, cell in closure
            if _is_full(cell)
        ),
        *((name, f"{text}, attribute {name!r}", inner) for name, inner in vars(value).items()),
        ("", f"{text}, defaults", value.__defaults__),
    ]


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises where a variable has no value yet
    except ValueError:
        return False
    return True


@_look_further.register(types.ModuleType | type)
def _scope(value: Any, text: str) -> Looked:  # noqa: ANN401
    """A module or a class, if it is the user's own."""
    is_class = isinstance(value, type)
    file = getattr(sys.modules.get(value.__module__) if is_class else value, "__file__", None)
    if not (file and is_own(file)) and not (is_class and value.__module__ == "__main__"):
        return value.__name__, ()
    return value.__name__, _of_scope(vars(value), text if is_class else Path(str(file)).name)


# -- variables that iterations set -----------------------------------------------------------------


def variables_set(file: str, line: int) -> tuple[frozenset[str], frozenset[str]]:
    """The variables that the body of the `for` loop in a line of a file sets: those that go from
    one iteration to the next, because it may read them before it sets them, and the others. Empty
    without the file's text."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return frozenset(), frozenset()

    loops = [each for each in ast.walk(tree) if isinstance(each, ast.For)]
    at = [each for each in loops if each.iter.lineno <= line <= (each.iter.end_lineno or line)]
    if not at:
        return frozenset(), frozenset()

    body = _Reads()
    body.walk([at[-1].target])
    targets = set(body.is_set)
    body.walk(at[-1].body)
    return frozenset(body.ever_set & body.read), frozenset(body.ever_set - body.read - targets)


_SCOPES = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.comprehension, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


class _Reads:
    """Walks through code in its order: `is_set` has the variables that all ways to a place have
    set, and `read` those that were read where they may not be set."""

    def __init__(self) -> None:
        self.is_set = set[str]()
        self.ever_set = set[str]()
        self.read = set[str]()

    def walk(self, nodes: Iterable[ast.AST]) -> None:
        """Goes through nodes, one after the other."""
        for node in nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self.read |= {name} - self.is_set
                case ast.Name(id=name):
                    self._set(name)
                case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr():
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                        self.read |= {node.target.id} - self.is_set
                    self.walk([node.value] if node.value else [])
                    self.walk(targets)
                case ast.If() | ast.While() | ast.For() | ast.Try() | ast.match_case():
                    self._walk_ways(node)
                case _ if isinstance(node, _SCOPES):
                    self._walk_scope(node)
                case _:
                    self.walk(ast.iter_child_nodes(node))

    def _walk_ways(self, node: ast.AST) -> None:
        """A choice between branches, and loops; the body of a `for` is assumed to run at least
        once.
        """
        always = list[ast.AST]()
        ways = list[Sequence[ast.AST]]()
        finally_ = list[ast.stmt]()
        match node:
            case ast.If(test, body, orelse) | ast.While(test, body, orelse):
                always = [test]
                ways = [body, orelse]
            case ast.For(target, iterated, body, orelse):
                always = [iterated, target]
                ways = [[*body, *orelse]]
            case ast.Try(body, handlers, orelse, finally_):
                ways = [[*body, *orelse], *(list(ast.iter_child_nodes(each)) for each in handlers)]
            case _:
                ways = [list(ast.iter_child_nodes(node)), []]

        self.walk(always)
        before = set(self.is_set)
        after = list[set[str]]()
        for way in ways:
            self.is_set = set(before)
            self.walk(way)
            after.append(self.is_set)

        self.is_set = set.intersection(*after)
        self.walk(finally_)

    def _walk_scope(self, node: ast.AST) -> None:
        """Code with variables of its own, such as a function."""
        before = set(self.is_set), set(self.ever_set)
        inner = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self.is_set |= {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}

        # Comprehensions set their variables after what uses them.
        self.walk(sorted(inner, key=lambda each: not isinstance(each, ast.comprehension)))
        if not isinstance(node, ast.comprehension):
            self.is_set, self.ever_set = before
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._set(node.name)

    def _set(self, name: str) -> None:
        self.is_set.add(name)
        self.ever_set.add(name)
