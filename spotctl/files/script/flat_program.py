"""A script as one list of statements: the functions on the way to its loop are written out."""

import ast
import copy
from collections.abc import Callable, Mapping
from typing import Any

from spotctl.files.script.reading import TrainingScript
from spotctl.files.script.source import (
    QUIET,
    Definition,
    LoopStatement,
    Statements,
    names_set,
    same_place,
)

Refuse = Callable[[ast.AST, str], None]


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
        self._path = [call]
        while not isinstance(scope := self._source.scope(self._path[-1]), ast.Module):
            sites = [site for site in self._source.calls if self._source.called(site) == scope.name]
            if len(sites) != 1 or isinstance(scope, ast.AsyncFunctionDef) or scope.decorator_list:
                lines = ", ".join(f"line {site.lineno}" for site in sites) or "no line"
                self._refuse(
                    scope,
                    f"{scope.name}() trains and is called in {lines}; call it once, by its name",
                )
                return []
            self._path.append(sites[0])

        return self._written_out(self._source.tree.body, len(self._path) - 1)

    def _written_out(self, block: Statements, depth: int) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for statement in block:
            statements += self._expanded(statement, depth)
        return statements

    def _expanded(self, statement: ast.stmt, depth: int) -> list[ast.stmt]:
        if isinstance(statement, ast.Global | ast.Pass):
            return []

        if isinstance(statement, ast.If):
            known: bool | None = True
            if "__name__" not in ast.unparse(statement.test):
                known = self._known(statement.test)
            if known is not None:
                return self._written_out(statement.body if known else statement.orelse, depth)

        where = self._path[depth]
        if isinstance(statement, Definition) or not any(
            same_place(node, where) for node in ast.walk(statement)
        ):
            return [statement]

        return self._leading(statement, depth)

    def _leading(self, statement: ast.stmt, depth: int) -> list[ast.stmt]:
        """A statement with the call that leads to the loop, or with the loop."""
        match statement:
            case ast.Try(body=body, handlers=handlers) if all(
                handler.type and "KeyboardInterrupt" in ast.unparse(handler.type)
                for handler in handlers
            ):
                return self._written_out(body, depth)
            case ast.With(items=items, body=body) if self._encloses_loop(
                statement, self._path[depth]
            ):
                calls = [getattr(item.context_expr, "func", item.context_expr) for item in items]
                if not all(QUIET.search(self._source.dotted(call)) for call in calls):
                    self._refuse(statement, "the loop runs within this; write it without")
                named = [
                    ast.copy_location(
                        ast.Assign([item.optional_vars], item.context_expr), statement
                    )
                    for item in items
                    if item.optional_vars is not None
                ]
                return [*named, *self._written_out(body, depth)]
            case ast.For() | ast.While():
                if statement.orelse:
                    self._refuse(statement, "the loop has an else")
                loop = copy.copy(statement)
                loop.body = self._written_out(statement.body, depth)
                return [loop]
        return self._called_function(statement, depth) if depth else [statement]

    def _encloses_loop(self, statement: ast.stmt, where: ast.AST) -> bool:
        return where is not self._path[0] or any(
            isinstance(node, LoopStatement)
            and any(same_place(inner, where) for inner in ast.walk(node))
            for node in ast.walk(statement)
        )

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

        first: list[ast.stmt] = []
        given = _bound_arguments(function, call)
        if given is None:
            self._refuse(call, f"passes arguments to {function.name}() that are not written out")
            return []

        declared = {
            name
            for node in ast.walk(function)
            if isinstance(node, ast.Global)
            for name in node.names
        }

        names: dict[str, ast.expr] = {}
        changed = names_set(function.body)
        rebound = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                rebound.add(node.id)

        for name, argument in given.items():
            if name not in rebound and isinstance(
                argument, ast.Name | ast.Constant | ast.Attribute
            ):
                names[name] = argument
            else:
                local = name if name not in self._taken else f"{name}_{function.name}"
                names[name] = ast.Name(local, ast.Load())
                first.append(
                    ast.copy_location(ast.Assign([ast.Name(local, ast.Store())], argument), call)
                )

        for name in (changed & self._taken) - declared - names.keys():
            names[name] = ast.Name(f"{name}_{function.name}", ast.Load())
        self._taken |= changed | {node.id for node in names.values() if isinstance(node, ast.Name)}
        body: list[ast.stmt] = [
            _Renamed(names).visit(copy.deepcopy(inner)) for inner in function.body
        ]

        if isinstance(last := body[-1], ast.Return):
            body.pop()
            if isinstance(statement, ast.Assign) and last.value is not None:
                body.append(ast.copy_location(ast.Assign(statement.targets, last.value), last))

        return [*map(ast.fix_missing_locations, first), *self._written_out(body, depth - 1)]

    def _known(self, test: ast.expr) -> bool | None:
        """Whether a condition holds with the defaults of the script's arguments; None if they do
        not say.
        """
        arguments = [argument for argument in self._script.arguments if not argument.required]
        defaults: dict[str, Any] = {
            each.name: False if each.is_switch else each.default for each in arguments
        }

        class Defaults(ast.NodeTransformer):
            def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
                is_argument = isinstance(node.value, ast.Name) and node.attr in defaults
                if is_argument:
                    return ast.copy_location(ast.Constant(defaults[node.attr]), node)
                return node

        if not any(isinstance(node, ast.Attribute) for node in ast.walk(test)):
            return None

        filled = Defaults().visit(copy.deepcopy(test))
        simple = (
            ast.Constant,
            ast.Compare,
            ast.BoolOp,
            ast.UnaryOp,
            ast.operator,
            ast.cmpop,
            ast.boolop,
            ast.unaryop,
        )

        if not all(isinstance(node, simple) for node in ast.walk(filled)):
            return None

        expression = ast.fix_missing_locations(ast.Expression(filled))
        # Constants.
        return bool(eval(compile(expression, "condition", "eval"), {"__builtins__": {}}))  # noqa: S307


class _Renamed(ast.NodeTransformer):
    """Replaces names by other names or values."""

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        new = self._names.get(node.id)
        if new is None:
            return node
        new = copy.deepcopy(new)
        if isinstance(new, ast.Name):
            new.ctx = node.ctx
        return ast.copy_location(new, node)


def _bound_arguments(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The expression that each parameter gets; None if a call or function has `*` or `**`."""
    known = function.args
    parameters = [argument.arg for argument in (*known.posonlyargs, *known.args)]
    spread = any(isinstance(argument, ast.Starred) for argument in call.args)
    if (
        known.vararg
        or known.kwarg
        or spread
        or any(keyword.arg is None for keyword in call.keywords)
    ):
        return None

    given: dict[str, ast.expr] = dict(
        zip(parameters[len(parameters) - len(known.defaults) :], known.defaults, strict=True)
    )
    given |= {
        argument.arg: default
        for argument, default in zip(known.kwonlyargs, known.kw_defaults, strict=True)
        if default is not None
    }

    given |= dict(zip(parameters, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return given
