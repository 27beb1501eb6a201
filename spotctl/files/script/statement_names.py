"""The names that statements of a script read, set and change, and the calls in them."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from spotctl.files.script.source import ScriptSource

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LoopStatement = ast.For | ast.While
Statements = Sequence[ast.stmt]

QUIET = re.compile(
    r"^(print|logging|log|logger|wandb|mlflow|writer|tqdm|bar|pbar|progress\w*|time|datetime|math|os|sys|json|csv|gc|shutil"
    r"|pathlib|Path|warnings|plt|matplotlib|open|len|str|int|float|bool|round|sum|min|max|zip|enumerate|range|sorted|abs"
    r"|any|all|list|dict|tuple|set|isinstance|format|type|copy|iter|next|numpy)(\.|$|\()"
)
"""Functions and modules that show, measure or store."""


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Names in expressions, without those of comprehensions and lambdas."""
    roots = list(nodes)
    names = {node.id for root in roots for node in ast.walk(root) if isinstance(node, ast.Name)}
    return names - {name for root in roots for name in _local(root)}


def _local(root: ast.AST) -> set[str]:
    """Names that belong to comprehensions and lambdas."""
    inner = [node.target for node in ast.walk(root) if isinstance(node, ast.comprehension)]
    names = {node.id for target in inner for node in ast.walk(target) if isinstance(node, ast.Name)}
    lambdas = [node.args for node in ast.walk(root) if isinstance(node, ast.Lambda)]
    return names | {
        node.arg
        for arguments in lambdas
        for node in ast.walk(arguments)
        if isinstance(node, ast.arg)
    }


def names_set(block: Iterable[ast.stmt]) -> set[str]:
    """Names to which statements give a value, or of whose value they change a part."""
    names: set[str] = set()
    for statement in block:
        if isinstance(statement, Definition):
            names.add(statement.name)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(
                node.ctx, ast.Store
            ):
                base: ast.AST = node
                while isinstance(base, ast.Attribute | ast.Subscript):
                    base = base.value
                names |= names_in([base])
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        names -= _local(statement)

    return names


def names_read(statement: ast.stmt) -> set[str]:
    """Names that a statement reads; of a definition those that it does not give a value itself."""
    read = {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }

    read -= _local(statement)
    if isinstance(statement, ast.AugAssign):
        read |= names_set([statement])
    if isinstance(statement, Definition):
        inner = [node for node in ast.walk(statement) if node is not statement]
        read -= {node.arg for node in inner if isinstance(node, ast.arg)}
        read -= {
            node.id
            for node in inner
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    return read


def names_changed(statement: ast.stmt) -> set[str]:
    """Names of objects that a statement may change: by a call on a line of its own, or by setting a
    part.
    """
    if isinstance(statement, Definition):
        return set()

    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            names |= names_in([node.value])
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            names |= names_in([node])

    return names


def globals_of(function: ast.AST) -> set[str]:
    return {
        name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names
    }


def calls_in(block: Iterable[ast.AST]) -> Iterator[ast.Call]:
    return (node for root in block for node in ast.walk(root) if isinstance(node, ast.Call))


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of loops in it, whose breaks are their own."""
    if isinstance(statement, LoopStatement):
        return
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from own_nodes(child)


def method_of(call: ast.Call) -> str:
    func = call.func
    return (
        func.attr
        if isinstance(func, ast.Attribute)
        else func.id
        if isinstance(func, ast.Name)
        else ""
    )


def has_backward(node: ast.AST) -> bool:
    return not isinstance(node, Definition) and any(
        method_of(call) == "backward" for call in calls_in([node])
    )


def is_call_of(source: ScriptSource, node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and source.called(node).rpartition(".")[2] in names


def unwrapped(node: ast.expr) -> ast.expr:
    """The loader in `enumerate(tqdm(loader))`."""
    while (
        isinstance(node, ast.Call)
        and method_of(node) in ("enumerate", "tqdm", "resuming")
        and node.args
    ):
        node = node.args[0]
    return node


def same_place(node: ast.AST, other: ast.AST) -> bool:
    return type(node) is type(other) and all(
        getattr(node, place, None) == getattr(other, place, None)
        for place in ("lineno", "col_offset", "end_lineno", "end_col_offset")
    )
