"""All messages of a job, by conversation: updates, partitions, orders, reports.

A node is one machine: it may serve partitions, back them up, and work. A message carries the epoch in which it was
sent: a node drops messages of earlier epochs and keeps those of later epochs until it has entered them.

Version c of a partition is its state after clock c; version 0 is the initial model.
"""

from __future__ import annotations

from agileml.protocol.orders import (
    Collect,
    Drain,
    Enter,
    GiveShard,
    Leave,
    Limit,
    Move,
    Recover,
    Route,
    Stable,
    Table,
)
from agileml.protocol.partitions import (
    EndOfLife,
    EndOfLifeSeen,
    Handover,
    NeedVersion,
    Patch,
    PendingPush,
    Restore,
    Tally,
    Version,
    Waiting,
)
from agileml.protocol.reports import (
    UNKNOWN_STEP,
    Adopted,
    Broken,
    Collected,
    Drained,
    Heartbeat,
    Hello,
    PartitionProgress,
    Ready,
    Restored,
    Routed,
    Saved,
    Taken,
    Warned,
    WorkDone,
)
from agileml.protocol.updates import (
    PartitionUpdate,
    Pull,
    Push,
    Reads,
    Snapshot,
    TakeShard,
    UpdateEntry,
)

__all__ = [
    "UNKNOWN_STEP",
    "Adopted",
    "Broken",
    "Collect",
    "Collected",
    "Drain",
    "Drained",
    "EndOfLife",
    "EndOfLifeSeen",
    "Enter",
    "GiveShard",
    "Handover",
    "Heartbeat",
    "Hello",
    "Leave",
    "Limit",
    "Move",
    "NeedVersion",
    "PartitionProgress",
    "PartitionUpdate",
    "Patch",
    "PendingPush",
    "Pull",
    "Push",
    "Reads",
    "Ready",
    "Recover",
    "Restore",
    "Restored",
    "Route",
    "Routed",
    "Saved",
    "Snapshot",
    "Stable",
    "Table",
    "TakeShard",
    "Taken",
    "Tally",
    "UpdateEntry",
    "Version",
    "Waiting",
    "Warned",
    "WorkDone",
]
