"""The loop in which a script trains, and the objects that it changes."""

import ast
import re
from dataclasses import dataclass
from operator import itemgetter

from spotctl.files.script.source import ScriptScope, ScriptSource, nodes_of

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
    """The outermost loop that trains, and the names of what it changes.

    A `while` loop has none: nothing says where it stands.
    """

    node: ast.For | ast.While
    states: tuple[str, ...]
    scope: ScriptScope


def loop_of(source: ScriptSource) -> TrainingLoop | None:
    """The loop in which a script trains; None if it has none that is recognized."""
    # Functions that train, also through others.
    trains: set[str] = set()
    while True:
        calling = [
            n for n, function in source.functions.items() if _calls(source, function, trains)
        ]
        if trains.issuperset(calling):
            break
        trains.update(calling)

    loops = [
        node
        for node in source.nodes
        if isinstance(node, ast.For | ast.While)
        and any(_calls(source, part, trains) for part in node.body)
    ]

    ranked = []
    for loop in loops:
        if any(outer in loops for outer in source.above(loop)):
            continue

        scope, is_called_from_loop, is_counted = source.scope(loop), False, False
        if not isinstance(scope, ast.Module):
            # A function with a loop over batches may itself be called in a loop over epochs.
            for call in source.calls_of(scope.name):
                is_called_from_loop |= any(outer in loops for outer in source.above(call))
        if isinstance(loop, ast.For):
            head = f"{source.code(loop.target)} {source.code(loop.iter)}"
            is_counted = _WORDS.search(head) is not None
        rank = (is_called_from_loop, not is_counted, loop.lineno)
        ranked.append((rank, loop))

    if not ranked:
        return None

    _, best = min(ranked, key=itemgetter(0))
    scope = source.scope(best)
    states = () if isinstance(best, ast.While) else _states(source, best, scope)
    return TrainingLoop(best, states, scope)


def _calls(source: ScriptSource, node: ast.AST, functions: set[str]) -> bool:
    called = [source.called(call) for call in nodes_of(ast.Call, node)]
    names = {name.rpartition(".")[2] for name in called}
    return bool(names & (_STEPS | functions))


def _states(source: ScriptSource, loop: ast.For, scope: ScriptScope) -> tuple[str, ...]:
    """Models, optimizers and schedules that exist before the loop."""
    # Names that the loop can see, and their values: of the module, and of its function up to the
    # loop.
    before: dict[str, ast.expr | None] = {}
    conditions: dict[str, list[ast.expr]] = {}
    for place in dict.fromkeys((source.tree, scope)):
        if not isinstance(place, ast.Module):
            parameters = (*place.args.args, *place.args.kwonlyargs)
            before |= dict.fromkeys(parameter.arg for parameter in parameters)
        for node in nodes_of(ast.Assign, place):
            is_before = place is not scope or node.lineno < loop.lineno
            if is_before and source.scope(node) is place:
                tests = [each.test for each in source.above(node) if isinstance(each, ast.If)]
                for target in node.targets:
                    names = target.elts if isinstance(target, ast.Tuple) else [target]
                    given = [each.id for each in names if isinstance(each, ast.Name)]
                    # What is given more than once, or under several conditions, has some value.
                    conditions |= {name: [] if name in before else tests for name in given}
                    before |= dict.fromkeys(given, node.value)

    # Their methods show that they hold a training's state.
    held = set[str]()
    for call in source.calls:
        match call.func:
            case ast.Attribute(ast.Name(holder), method) if method in _METHODS:
                held.add(holder)

    states = []
    for name, value in before.items():
        is_made = isinstance(value, ast.Call) and _OPTIMIZER.search(source.called(value))
        if is_made or name in held:
            when = " and ".join(f"({source.code(test)})" for test in conditions.get(name, ()))
            states.append(f"*([{name}] if {when} else [])" if when else name)
    return tuple(states)
