"""The loop in which a script trains, and the objects that it changes."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from spotctl.files.script.source import ScriptScope, ScriptSource

_STEPS = {
    "backward",
    "partial_fit",
    "train_on_batch",
    "fit",
    "training_step",
    "value_and_grad",
    "grad",
    "zero_grad",
}
"""Calls that show that a loop trains."""
_WORDS = re.compile(r"epoch|iteration|\bstep|\bround", re.IGNORECASE)
_OPTIMIZER = re.compile(
    r"(^|\.)(optim(izers?)?\.\w+|lr_scheduler\.\w+|(SGD|Adam\w*|RMSprop|Adagrad|LBFGS|\w+LR|GradScaler|get_\w*schedule\w*))$"
)
_METHODS = {
    "parameters",
    "named_parameters",
    "state_dict",
    "load_state_dict",
    "partial_fit",
    "train_on_batch",
    "zero_grad",
    "step",
}
"""Methods of objects that hold a training's state."""


@dataclass(frozen=True, slots=True)
class TrainingLoop:
    """The outermost loop that trains, the names of what it changes, and plain values that start
    again with it.

    A `while` loop has neither: nothing says where it stands.
    """

    node: ast.For | ast.While
    states: tuple[str, ...]
    values: tuple[str, ...]
    scope: ScriptScope


def loop_of(source: ScriptSource) -> TrainingLoop | None:
    """The loop in which a script trains; None if it has none that is recognized."""
    trains = _training_functions(source)
    loops = [
        node
        for node in source.nodes
        if isinstance(node, ast.For | ast.While)
        and any(_calls(source, part, trains) for part in node.body)
    ]

    outer = [
        loop
        for loop in loops
        if not any(
            isinstance(node, ast.For | ast.While) and node in loops for node in source.above(loop)
        )
    ]

    ranked = []
    for loop in outer:
        scope, is_called_from_loop, is_counted = source.scope(loop), False, False
        if not isinstance(scope, ast.Module):
            # A function with a loop over batches may itself be called in a loop over epochs.
            callers = [
                call
                for call in source.calls
                if source.called(call).rpartition(".")[2] == scope.name
            ]
            is_called_from_loop = any(
                above in loops for call in callers for above in source.above(call)
            )
        if isinstance(loop, ast.For):
            is_counted = any(_WORDS.search(source.code(part)) for part in (loop.target, loop.iter))
        ranked.append(((is_called_from_loop, not is_counted, loop.lineno), loop))

    if not ranked:
        return None

    _, best = min(ranked, key=lambda pair: pair[0])
    scope = source.scope(best)
    if isinstance(best, ast.While):
        return TrainingLoop(best, (), (), scope)
    return TrainingLoop(best, _states(source, best, scope), _values(best, scope), scope)


def _training_functions(source: ScriptSource) -> set[str]:
    """Functions of the script that train, also through others."""
    names: set[str] = set()
    while True:
        more = set()
        for name, function in source.functions.items():
            if name not in names and _calls(source, function, names):
                more.add(name)
        if not more:
            return names
        names |= more


def _calls(source: ScriptSource, node: ast.AST, functions: set[str]) -> bool:
    names = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            names.add(source.called(call).rpartition(".")[2])
    return bool(names & (_STEPS | functions))


def _states(source: ScriptSource, loop: ast.For, scope: ScriptScope) -> tuple[str, ...]:
    """Models, optimizers and schedules that exist before the loop."""
    # Names that the loop can see, and their values: of the module, and of its function up to the
    # loop.
    before: dict[str, ast.expr | None] = {}
    for place in dict.fromkeys((source.tree, scope)):
        if not isinstance(place, ast.Module):
            before |= dict.fromkeys(arg.arg for arg in (*place.args.args, *place.args.kwonlyargs))
        for node in ast.walk(place):
            if not isinstance(node, ast.Assign) or source.scope(node) is not place:
                continue
            if place is not scope or node.lineno < loop.lineno:
                before |= {target.id: node.value for target in _names(node.targets)}

    # Their methods show that they hold a training's state.
    held = set()
    for call in source.calls:
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in _METHODS
            and isinstance(call.func.value, ast.Name)
        ):
            held.add(call.func.value.id)

    states = [
        name
        for name, value in before.items()
        if name in held or (isinstance(value, ast.Call) and _OPTIMIZER.search(source.called(value)))
    ]

    return tuple(dict.fromkeys(states))


def _names(targets: list[ast.expr]) -> Iterator[ast.Name]:
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (part for part in parts if isinstance(part, ast.Name))


def _values(loop: ast.For, scope: ScriptScope) -> tuple[str, ...]:
    """Plain values, such as the best accuracy so far, that are given before the loop and changed in
    it.
    """
    names: set[str] = set()
    for node in (node for statement in loop.body for node in ast.walk(statement)):
        if isinstance(node, ast.Assign):
            names |= {target.id for target in _names(node.targets)}
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)

    earlier = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and node.lineno < loop.lineno
    ]

    given = {target.id: node.value for node in earlier for target in _names(node.targets)}
    inner = [node for part in loop.body for node in ast.walk(part)]
    read = {
        node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    read |= {
        node.target.id
        for node in inner
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }

    return tuple(
        sorted(
            name for name in names & given.keys() & read if not isinstance(given[name], ast.Call)
        )
    )
