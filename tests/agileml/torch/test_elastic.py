"""`TorchModule` under random faults: bit for bit the undisturbed model, with all or half of the
bits on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from agileml import reference
from agileml.apps.registry import TrainerSource
from agileml.params import WIRES
from agileml.runtime.results import model_of
from agileml.torch import TorchModule
from tests.agileml.local_faults import LocalSchedule, digest_after
from tests.agileml.schedules import Schedule, undisturbed
from tests.agileml.torch.nets import PARTS, lined, mixed, normalized, streamed, visits

MODELS: dict[str, Callable[[], TorchModule]] = {
    f"{make.__name__} {wire}": partial(make, wire) for make in (mixed, normalized) for wire in WIRES
}
MODELS |= {make.__name__: make for make in (streamed, lined)}

BATCH = 2 * PARTS
EPOCH = 3
"""Clocks of an epoch of `visits`."""

SPREAD = 61
"""Seeds this far apart aim at different kinds of messages."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(11, 11 + 10 * SPREAD, SPREAD))
def test_the_model_equals_the_reference(model: str, seed: int) -> None:
    Schedule(seed, MODELS[model]).run()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(12, 12 + 20 * SPREAD, SPREAD))
def test_no_sample_is_skipped_or_repeated(seed: int) -> None:
    simulation, result = Schedule(seed, visits).run()
    visited = -model_of(simulation.layout, result.versions)["left"]
    epochs, more = divmod(result.clock, EPOCH)
    assert set(visited.tolist()) <= ({epochs, epochs + 1} if more else {epochs})
    assert visited.sum() == result.clock * BATCH


def test_the_wire_makes_a_difference() -> None:
    for make in (mixed, normalized):
        digests = {
            reference.model_digest(undisturbed(MODELS[f"{make.__name__} {wire}"], True)(3))
            for wire in WIRES
        }
        assert len(digests) == len(WIRES)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("model", "seed"), [("mixed", 8), ("normalized", 1), ("mixed", 5)])
@pytest.mark.parametrize("wire", ["bf16", "fp16"])
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("left_behind")
def test_processes_that_are_killed_change_no_bit(model: str, seed: int, wire: str) -> None:
    source = TrainerSource("tests.agileml.torch.nets:paced", {"model": model, "wire": wire})
    LocalSchedule(seed, source, digest_after(source)).run()
