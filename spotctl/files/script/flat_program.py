"""A script as one list of statements: the functions on the way to its loop are written out."""

import ast
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from spotctl.files.script.reading import TrainingScript
from spotctl.files.script.source import (
    QUIET,
    Definition,
    LoopStatement,
    Statements,
    globals_of,
    names_set,
    nodes_of,
    same_place,
)

Refuse = Callable[[ast.AST, str], None]

_SIMPLE = (
    ast.Constant,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.operator,
    ast.cmpop,
    ast.boolop,
    ast.expr_context,
    ast.unaryop,
)
"""The parts of a condition that can be decided without running the script."""


class FlatProgram:
    """The statements of a script in the order in which they run up to its loop, without the calls
    that lead there.
    """

    def __init__(self, script: TrainingScript, refuse: Refuse) -> None:
        self._script, self._refuse, self._source = script, refuse, script.source
        self._taken = names_set(self._source.tree.body)
        self._path: list[ast.Call] = []

    def leading_to(self, call: ast.Call) -> list[ast.stmt]:
        """The statements, with those of the functions from which the call is reached."""
        source, self._path = self._source, [call]
        while not isinstance(scope := source.scope(self._path[-1]), ast.Module):
            name = scope.name
            sites = [site for site in source.calls if source.called(site) == name]
            is_odd = isinstance(scope, ast.AsyncFunctionDef) or scope.decorator_list
            if len(sites) != 1 or is_odd:
                lines = ", ".join(f"line {site.lineno}" for site in sites) or "no line"
                why = f"{name}() trains and is called in {lines}; call it once, by its name"
                self._refuse(scope, why)
                return []
            self._path.append(sites[0])

        return self._as_defined(self._written_out(source.tree.body, len(self._path) - 1))

    def _as_defined(self, program: Statements) -> list[ast.stmt]:
        """The statements with networks as they are before they are compiled, which only makes them
        faster."""
        kept, compiled = list[ast.stmt](), dict[str, ast.Name]()
        for statement in program:
            match statement:
                case ast.Assign([ast.Name(name)], ast.Call(args=[ast.Name() as given, *_]) as call):
                    if self._source.called(call) == "torch.compile":
                        compiled[name] = compiled.get(given.id, given)
                        continue
            kept.append(statement)

        renamed = _Renamed({name: as_ for name, as_ in compiled.items() if name != as_.id})
        return [renamed.visit(copy.deepcopy(each)) for each in kept] if renamed.names else kept

    def _written_out(self, block: Statements, depth: int) -> list[ast.stmt]:
        where = self._path[depth]
        statements: list[ast.stmt] = []
        for statement in block:
            if isinstance(statement, ast.Global | ast.Pass):
                continue

            if isinstance(statement, ast.If):
                known: bool | None = True
                if "__name__" not in ast.unparse(statement.test):
                    known = self._known(statement.test)
                if known is not None:
                    taken = statement.body if known else statement.orelse
                    statements += self._written_out(taken, depth)
                    continue

            leads = any(same_place(node, where) for node in ast.walk(statement))
            if leads and not isinstance(statement, Definition):
                statements += self._leading(statement, depth)
            else:
                statements.append(statement)
        return statements

    def _leading(self, statement: ast.stmt, depth: int) -> list[ast.stmt]:
        """A statement with the call that leads to the loop, or with the loop."""
        where = self._path[depth]
        loops = [node for node in ast.walk(statement) if isinstance(node, LoopStatement)]
        within = (node for loop in loops for node in ast.walk(loop))
        has_loop = where is not self._path[0] or any(same_place(node, where) for node in within)
        match statement:
            case ast.Try(body=body, handlers=handlers) if all(
                handler.type and "KeyboardInterrupt" in ast.unparse(handler.type)
                for handler in handlers
            ):
                return self._written_out(body, depth)
            case ast.With(items=items, body=body) if has_loop:
                calls = [getattr(item.context_expr, "func", item.context_expr) for item in items]
                if not all(QUIET.search(self._source.dotted(call)) for call in calls):
                    self._refuse(statement, "the loop runs within this; write it without")
                named: list[ast.stmt] = []
                for item in items:
                    made = item.context_expr
                    if item.optional_vars is not None:
                        assigned = ast.Assign([item.optional_vars], made)
                        named.append(ast.copy_location(assigned, statement))
                return [*named, *self._written_out(body, depth)]
            case ast.For() | ast.While():
                if statement.orelse:
                    self._refuse(statement, "the loop has an else")
                loop = copy.copy(statement)
                loop.body = self._written_out(statement.body, depth)
                return [loop]
        return self._called_function(statement, depth) if depth else [statement]

    def _called_function(self, statement: ast.stmt, depth: int) -> list[ast.stmt]:
        """The body of the function that a statement calls, with the caller's names."""
        call, function = self._path[depth], self._source.scope(self._path[depth - 1])
        assert isinstance(function, ast.FunctionDef)
        value = None
        if isinstance(statement, ast.Expr | ast.Assign | ast.Return):
            value = statement.value

        if value is None or not same_place(value, call):
            self._refuse(
                statement,
                f"calls {function.name}() within an expression; call it on a line by itself",
            )
            return []

        given = _bound_arguments(function, call)
        if given is None:
            self._refuse(call, f"passes arguments to {function.name}() that are not written out")
            return []

        first, names = self._names_within(function, call, given)
        renamed = _Renamed(names)
        copied = copy.deepcopy(function.body)
        body: list[ast.stmt] = [renamed.visit(inner) for inner in copied]

        last = body[-1]
        if isinstance(last, ast.Return):
            body.pop()
            if isinstance(statement, ast.Assign) and last.value is not None:
                assigned = ast.Assign(statement.targets, last.value)
                body.append(ast.copy_location(assigned, last))

        return [*first, *self._written_out(body, depth - 1)]

    def _names_within(
        self, function: ast.FunctionDef, call: ast.Call, given: Mapping[str, ast.expr]
    ) -> tuple[list[ast.stmt], dict[str, ast.expr]]:
        """The expressions that the names of a function stand for where it is written out, and the
        statements before it that give its parameters their values.
        """
        names: dict[str, ast.expr] = {}
        first: list[ast.stmt] = []
        stored = (node for node in nodes_of(ast.Name, function) if isinstance(node.ctx, ast.Store))
        rebound = {node.id for node in stored}
        for name, argument in given.items():
            is_plain = isinstance(argument, ast.Name | ast.Constant | ast.Attribute)
            if is_plain and name not in rebound:
                names[name] = argument
                continue
            local = name if name not in self._taken else f"{name}_{function.name}"
            names[name] = ast.Name(local, ast.Load())
            assigned = ast.copy_location(ast.Assign([ast.Name(local, ast.Store())], argument), call)
            first.append(ast.fix_missing_locations(assigned))

        changed = names_set(function.body)
        for name in (changed & self._taken) - globals_of(function) - names.keys():
            names[name] = ast.Name(f"{name}_{function.name}", ast.Load())
        self._taken |= changed
        self._taken |= {node.id for node in names.values() if isinstance(node, ast.Name)}
        return first, names

    def _known(self, test: ast.expr) -> bool | None:
        """Whether a condition holds with the defaults of the script's arguments; None if they do
        not say.
        """
        if not nodes_of(ast.Attribute, test):
            return None

        defaults: dict[str, Any] = {}
        for argument in self._script.arguments.values():
            if not argument.required:
                defaults[argument.name] = False if argument.is_switch else argument.default

        # Each argument is an attribute of a name, such as args.
        known = [node for node in nodes_of(ast.Attribute, test) if node.attr in defaults]
        holders = [node.value for node in known if isinstance(node.value, ast.Name)]
        decided = {*known, *holders}
        if len(holders) < len(known) or not all(
            isinstance(node, _SIMPLE) or node in decided for node in ast.walk(test)
        ):
            return None

        names = dict.fromkeys((holder.id for holder in holders), SimpleNamespace(**defaults))
        expression = ast.fix_missing_locations(ast.Expression(test))
        code = compile(expression, "condition", "eval")
        # Constants and defaults.
        return bool(eval(code, {"__builtins__": {}, **names}))  # noqa: S307


@dataclass
class _Renamed(ast.NodeTransformer):
    """Replaces names by other names or values."""

    names: Mapping[str, ast.expr]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        new = self.names.get(node.id)
        if new is None:
            return node
        new = copy.deepcopy(new)
        if isinstance(new, ast.Name):
            new.ctx = node.ctx
        return ast.copy_location(new, node)


def _bound_arguments(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The expression that each parameter gets; None if a call or function has `*` or `**`."""
    known = function.args
    spread = any(isinstance(argument, ast.Starred) for argument in call.args)
    spread |= any(keyword.arg is None for keyword in call.keywords)
    if known.vararg or known.kwarg or spread:
        return None

    parameters = [argument.arg for argument in (*known.posonlyargs, *known.args)]
    without = len(parameters) - len(known.defaults)
    given: dict[str, ast.expr] = dict(zip(parameters[without:], known.defaults, strict=True))
    for argument, default in zip(known.kwonlyargs, known.kw_defaults, strict=True):
        if default is not None:
            given[argument.arg] = default

    given |= dict(zip(parameters, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is not None:
            given[keyword.arg] = keyword.value
    return given
