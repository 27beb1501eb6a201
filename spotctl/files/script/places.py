"""Where a script reads or writes: paths that come from arguments, from the environment, or from its text."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from spotctl.files.script.arguments import Argument, command_functions
from spotctl.files.script.source import ScriptSource

_MOST_STEPS = 12
_JOINING = ("os.path.join", "pathlib.Path", "pathlib.PurePath", "str", "os.fspath", "os.path.expanduser", "open")


class Head(StrEnum):
    """The beginning of a path."""

    ARGUMENT = "argument"
    VARIABLE = "variable"
    LITERAL = "literal"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """A path: the argument, variable or text that it begins with, and the text after that, where it is known."""

    head: Head
    name: str = ""
    tail: str = ""
    literal: ast.Constant | None = None

    @property
    def file(self) -> str:
        """The last part of the path, with `*` for what is not known."""
        whole = f"{self.name if self.head is Head.LITERAL else ''}/{self.tail}".rstrip("/")
        return whole.rpartition("/")[2]


_UNKNOWN = ScriptPlace(Head.UNKNOWN)


class Places:
    """Follows an expression to the place that it means."""

    def __init__(self, source: ScriptSource, arguments: Mapping[str, Argument]) -> None:
        self._source, self._arguments = source, arguments

    def of(self, node: ast.expr | None, steps: int = 0) -> ScriptPlace:
        """The place that an expression means."""
        if node is None or steps > _MOST_STEPS:
            return _UNKNOWN
        reader = self._readers.get(type(node))
        return _UNKNOWN if reader is None else reader(node, steps + 1)

    @cached_property
    def _readers(self) -> dict[type[ast.expr], Callable[[Any, int], ScriptPlace]]:
        return {
            ast.Constant: self._of_constant,
            ast.Attribute: self._of_attribute,
            ast.Subscript: self._of_item,
            ast.BinOp: self._of_operation,
            ast.JoinedStr: lambda text, steps: self._joined(text.values, steps, ""),
            ast.FormattedValue: lambda part, steps: self.of(part.value, steps),
            ast.BoolOp: lambda choice, steps: self._first_known(choice.values, steps),
            ast.IfExp: lambda choice, steps: self._first_known([choice.body, choice.orelse], steps),
            ast.Name: self._of_name,
            ast.Call: self._of_call,
        }

    def _of_constant(self, node: ast.Constant, _: int) -> ScriptPlace:
        return ScriptPlace(Head.LITERAL, node.value, literal=node) if isinstance(node.value, str) else _UNKNOWN

    def _of_attribute(self, node: ast.Attribute, _: int) -> ScriptPlace:
        is_argument = isinstance(node.value, ast.Name) and node.attr in self._arguments
        return ScriptPlace(Head.ARGUMENT, node.attr) if is_argument else _UNKNOWN

    def _of_operation(self, node: ast.BinOp, steps: int) -> ScriptPlace:
        if not isinstance(node.op, ast.Div | ast.Add):
            return _UNKNOWN
        return self._joined([node.left, node.right], steps, "/" if isinstance(node.op, ast.Div) else "")

    def _first_known(self, choices: list[ast.expr], steps: int) -> ScriptPlace:
        places = (self.of(choice, steps) for choice in choices)
        return next((place for place in places if place.head is not Head.UNKNOWN), _UNKNOWN)

    def _of_item(self, node: ast.Subscript, _: int) -> ScriptPlace:
        name = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(name, str):
            return _UNKNOWN
        if self._source.dotted(node.value) == "os.environ":
            return ScriptPlace(Head.VARIABLE, name)
        return ScriptPlace(Head.ARGUMENT, name) if name in self._arguments else _UNKNOWN

    def _of_call(self, call: ast.Call, steps: int) -> ScriptPlace:
        called = self._source.called(call)
        first = call.args[0] if call.args else None
        if called in ("os.environ.get", "os.getenv") and isinstance(first, ast.Constant):
            return ScriptPlace(Head.VARIABLE, str(first.value))
        if called in _JOINING or called.endswith((".joinpath", "().open")):
            if isinstance(call.func, ast.Attribute) and called.endswith((".joinpath", ".open")):
                return self._joined([call.func.value, *call.args], steps, "/")
            return self._joined(call.args[:1] if called == "open" else call.args, steps, "/")
        # Methods that return the same path: resolve(), absolute(), format(), with_suffix(".pt").
        if isinstance(call.func, ast.Attribute):
            return self.of(call.func.value, steps + 1)
        return _UNKNOWN

    def _joined(self, parts: list[ast.expr], steps: int, between: str) -> ScriptPlace:
        if not parts:
            return _UNKNOWN
        first = self.of(parts[0], steps + 1)
        rest = [self.of(part, steps + 1) for part in parts[1:]]
        texts = [place.name + place.tail if place.head is Head.LITERAL else "*" for place in rest]
        tail = between.join([first.tail, *texts]) if first.tail or texts else ""
        return replace(first, tail=tail if not between or not texts or tail.startswith(between) else between + tail)

    def _of_name(self, name: ast.Name, steps: int) -> ScriptPlace:
        value = self._value(name)
        if value is not None:
            return self.of(value, steps + 1)
        scope = self._source.scope(name)
        is_parameter = not isinstance(scope, ast.Module) and any(arg.arg == name.id for arg in _parameters(scope))
        if not is_parameter:
            return _UNKNOWN
        if name.id in self._arguments and scope.name in self._commands():  # type: ignore[union-attr]
            return ScriptPlace(Head.ARGUMENT, name.id)
        return self._of_parameter(scope, name.id, steps)  # type: ignore[arg-type]

    def _commands(self) -> set[str]:
        """Functions whose parameters are the arguments: of click, typer and fire."""
        decorated = {name for name, function in self._source.functions.items() if function.decorator_list}
        return decorated | command_functions(self._source)

    def _of_parameter(self, function: ast.FunctionDef, name: str, steps: int) -> ScriptPlace:
        """The place that callers pass for a parameter, or that of its default."""
        ordered = [arg.arg for arg in _parameters(function)]
        position = ordered.index(name) - (ordered[0] == "self")
        for call in self._source.calls:
            if self._source.called(call).rpartition(".")[2] != function.name:
                continue
            given = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
            if given is None and position < len(call.args):
                given = call.args[position]
            if given is not None and (place := self.of(given, steps + 1)).head is not Head.UNKNOWN:
                return place
        defaults = dict(
            zip(
                reversed([*function.args.posonlyargs, *function.args.args]),
                reversed(function.args.defaults),
                strict=False,
            )
        )
        return self.of(next((value for arg, value in defaults.items() if arg.arg == name), None), steps + 1)

    def _value(self, name: ast.Name) -> ast.expr | None:
        """The expression that a name was last given before, in its function or in the module."""
        scope = self._source.scope(name)
        best: tuple[bool, int] | None = None
        value: ast.expr | None = None
        for node in self._source.nodes:
            given = _binding(node, name.id)
            line = getattr(node, "lineno", 0) or getattr(given, "lineno", 0)
            if given is None or (line > name.lineno and self._source.scope(given) is scope):
                continue
            inner = self._source.scope(given)
            if inner is not scope and not isinstance(inner, ast.Module):
                continue
            if best is None or (inner is scope, line) >= best:
                best, value = (inner is scope, line), given
        return value


def _binding(node: ast.AST, name: str) -> ast.expr | None:
    """The expression that a statement gives to a name."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return value if any(isinstance(target, ast.Name) and target.id == name for target in targets) else None
        case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
            return value
        case ast.withitem(context_expr=value, optional_vars=ast.Name(id=target)) if target == name:
            return value
    return None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
