"""Which weight version a microbatch sees, and which versions a device holds: both follow from the order alone."""

from collections.abc import Mapping

from agileml.pipeline.schedule.schedules import Pass, StepOrder


def versions_used(scheme: str, order: StepOrder, stages: int, microbatches: int, start: int = 0) -> dict[int, int]:
    """The version of each microbatch of a device, for both of its passes. Version t is there after t updates.

    The order begins with an empty pipeline after `start` updates.

    Weight stashing takes the newest of the device. Vertical sync takes the version that the first stage took, and 2bw
    the version of one batch earlier, so that all stages take the same.
    """
    used: dict[int, int] = {}
    updates = start
    for step in order:
        if step.kind is Pass.UPDATE:
            updates += 1
        elif step.kind is Pass.FORWARD and step.microbatch not in used:
            if scheme == "vertical-sync":
                used[step.microbatch] = max(step.microbatch - stages + 1, start)
            elif scheme == "2bw":
                used[step.microbatch] = max(step.microbatch // microbatches - 1, 0)
            else:
                used[step.microbatch] = updates
    return used


def last_uses(order: StepOrder, used: Mapping[int, int]) -> dict[int, int]:
    """For each version the position in the order of the last pass that needs it."""
    return {used[step.microbatch]: i for i, step in enumerate(order) if step.kind is not Pass.UPDATE}


def peak_versions(order: StepOrder, used: Mapping[int, int]) -> int:
    """The most versions that a device holds: the newest, and older ones that a pass will still need."""
    last = last_uses(order, used)
    held, newest, peak = {0}, 0, 1
    for i, step in enumerate(order):
        if step.kind is Pass.UPDATE:
            newest += 1
            held.add(newest)
        held = {version for version in held if version == newest or last.get(version, -1) >= i}
        peak = max(peak, len(held))
    return peak


def peak_in_flight(order: StepOrder) -> int:
    """The most forward passes whose backward pass has not run yet."""
    flying = peak = 0
    for step in order:
        if step.kind is Pass.FORWARD:
            flying += 1
        elif step.kind is Pass.BACKWARD:
            flying -= 1
        peak = max(peak, flying)
    return peak
