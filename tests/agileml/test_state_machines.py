"""The structure of controller, node, server and worker: small composed parts, and complete tables
of states.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

import agileml
from agileml.core.controller import ROUTES
from agileml.core.events import StopJob
from agileml.core.recovery import NEXT_MODES, Epochs, Mode
from agileml.core.roll_call import NodeEvent
from agileml.errors import InvalidTransition
from agileml.protocol import messages
from agileml.protocol.actions import State, Transition
from agileml.roles import node, worker
from agileml.roles.chunk_runner import WorkResult
from agileml.roles.node import NodeState
from agileml.roles.server import NOT_SERVED
from agileml.roles.server_parts import PartitionMessage, Place
from agileml.roles.worker import WorkerMessage, WorkerState
from tests.agileml.targets import VALUES

ROOMS = ("core", "roles")
MAX_FIELDS = 10

# Unlinked is for the process of the controller, which looks after links; no state machine receives
# it.
PARTS_OF_MESSAGES = VALUES | {"GradientSums", "Unlinked"}
MESSAGES: set[Any] = {
    kind
    for name, kind in vars(messages).items()
    if isinstance(kind, type) and is_dataclass(kind) and name not in PARTS_OF_MESSAGES
}


def classes() -> Iterator[ast.ClassDef]:
    for room in ROOMS:
        for path in sorted((Path(agileml.__file__).parent / room).rglob("*.py")):
            for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(statement, ast.ClassDef):
                    yield statement


CLASSES = {known.name: known for known in classes()}


def base_names(known: ast.ClassDef) -> set[str]:
    return {base.id for base in known.bases if isinstance(base, ast.Name)}


def fields_of(known: ast.ClassDef) -> set[str]:
    """The fields of a dataclass, and the attributes that `__init__` sets; inherited ones, too."""
    names = {
        name for base in base_names(known) & CLASSES.keys() for name in fields_of(CLASSES[base])
    }
    for statement in known.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.FunctionDef(name="__init__"):
                names |= {
                    place.attr
                    for place in ast.walk(statement)
                    if isinstance(place, ast.Attribute)
                    and isinstance(place.ctx, ast.Store)
                    and isinstance(place.value, ast.Name)
                    and place.value.id == "self"
                }
    return names


def test_every_class_has_few_fields() -> None:
    counts = {name: len(fields_of(known)) for name, known in CLASSES.items()}
    assert {name: count for name, count in counts.items() if count > MAX_FIELDS} == {}
    assert counts["Controller"] > 5, "the fields of a plain class are not counted"
    assert counts["ServedPartition"] > 5, "the fields of a dataclass are not counted"


def test_no_class_inherits_from_a_concrete_one_of_these_rooms() -> None:
    concrete = {
        name
        for name, known in CLASSES.items()
        if fields_of(known)
        or any(isinstance(statement, ast.FunctionDef) for statement in known.body)
    }
    assert "Controller" in concrete
    heirs = {name for name, known in CLASSES.items() if base_names(known) & concrete}
    assert heirs == set()


@pytest.mark.parametrize("state", NodeState)
def test_a_node_has_a_rule_for_every_message_in_every_state(state: NodeState) -> None:
    assert node.TRANSITIONS[state].keys() == MESSAGES - ROUTES.keys()


@pytest.mark.parametrize("state", WorkerState)
def test_a_worker_has_a_rule_for_every_message_in_every_state(state: WorkerState) -> None:
    assert worker.TRANSITIONS[state].keys() == {*get_args(WorkerMessage), WorkResult}


@pytest.mark.parametrize(
    ("table", "first"),
    [(node.TRANSITIONS, NodeState.OUTSIDE), (worker.TRANSITIONS, WorkerState.IDLE)],
)
def test_every_state_can_be_reached(
    table: Mapping[State, Mapping[type, Transition]], first: State
) -> None:
    reached, new = {first}, {first}
    while new:
        new = {
            after for state in new for rule in table[state].values() for after in rule.to
        } - reached
        reached |= new
    assert reached == table.keys()


@pytest.mark.parametrize("place", Place)
def test_a_server_has_a_rule_for_every_message_about_a_partition_elsewhere(place: Place) -> None:
    assert NOT_SERVED[place].keys() == {*get_args(PartitionMessage), messages.Collect}


def test_the_controller_has_a_rule_for_every_event() -> None:
    assert {*get_args(NodeEvent), StopJob} <= ROUTES.keys()


def test_modes_follow_each_other_as_in_the_table() -> None:
    assert NEXT_MODES.keys() == set(Mode)
    for mode, following in NEXT_MODES.items():
        for other in Mode:
            epochs = Epochs(mode)
            if other in following:
                epochs.enter(other)
                assert epochs.mode is other
            else:
                with pytest.raises(
                    InvalidTransition, match=f"cannot go from {mode.value} to {other.value}"
                ):
                    epochs.enter(other)
