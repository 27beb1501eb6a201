"""A controller by hand, for tests: jobs of a few nodes, two partitions and four shards."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from agileml.core.controller import Controller
from agileml.core.events import (
    ControllerInstruction,
    ControllerSettings,
    NodeRules,
    Remember,
)
from agileml.core.recovery import Mode
from agileml.protocol.messages import (
    Hello,
    PartitionProgress,
    Ready,
    Restored,
    WorkDone,
)
from agileml.work import WorkPlan

PLAN = WorkPlan((2, 2, 2, 2), 0, 1)
BYTES = (8, 8)


def controller(
    reliable: int = 1,
    transient: int = 1,
    clocks: int = 5,
    **options: Any,  # noqa: ANN401
) -> Controller:
    rules = {
        option.name: options.pop(option.name)
        for option in fields(NodeRules)
        if option.name in options
    }
    settings = ControllerSettings(reliable, transient, clocks, nodes=NodeRules(**rules), **options)
    return Controller(PLAN, BYTES, settings)


def mode_of(control: Controller) -> Mode:
    return control.epochs.mode


def without_records(instructions: list[ControllerInstruction]) -> list[ControllerInstruction]:
    """All instructions but `Remember`, which always comes first."""
    assert not any(isinstance(one, Remember) for one in instructions[1:])
    return [one for one in instructions if not isinstance(one, Remember)]


def handle(control: Controller, *events: object, now: float = 0.0) -> list[ControllerInstruction]:
    """The instructions that follow from these events."""
    return [one for event in events for one in without_records(control.handle(event, now))]


def join(control: Controller, *names: str) -> list[ControllerInstruction]:
    for name in names:
        handle(control, Hello(name, name.startswith("r"), ""))
    return handle(control, *(Ready(name) for name in names))


def running(*names: str, clocks: int = 5, **options: Any) -> Controller:  # noqa: ANN401
    """A running job of these nodes at version 0."""
    reliable = sum(name.startswith("r") for name in names)
    control = controller(reliable, sum(name[0] == "t" for name in names), clocks, **options)
    join(control, *names)
    handle(control, *(Restored(name, 1) for name in names))
    assert mode_of(control) is Mode.RUNNING
    return control


def committed(control: Controller, clock: int, epoch: int = 1) -> list[ControllerInstruction]:
    """All servers and backups report a clock."""
    last = handle(
        control, WorkDone("r", epoch, clock, PLAN.accept_all(clock).chunks, 0.1, 0, 0.0, 0)
    )
    for partition, (owner, backup) in enumerate(
        zip(control.table.owners, control.table.backups, strict=True)
    ):
        if backup:
            last += handle(control, PartitionProgress(backup, epoch, partition, clock, backup=True))
        last += handle(control, PartitionProgress(owner, epoch, partition, clock, backup=False))
    return last
