"""Fact tables: what is known of machine types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pricing_data.catalog import InstanceType, MachineTraits
from pricing_data.store.facts import TYPES

MACHINE = InstanceType("aws", "t4g.small", 2, 2.0)
TRAITS = MachineTraits(
    "arm64", 0.2, "nitro", "uefi", True, 16.0, "nvidia", 75.0, 1_700_000_000_000_000
)


def test_the_traits_of_a_type_are_kept(tmp_path: Path) -> None:
    known = [replace(MACHINE, traits=TRAITS), replace(MACHINE, name="t4g.large")]
    TYPES.write(tmp_path / "types", known, b"")
    assert TYPES.read(tmp_path / "types") == known


def test_unknown_traits_are_filled_from_others_and_known_ones_stay() -> None:
    said = MachineTraits(architecture="x86_64", baseline=1.0)
    assert said.filled(TRAITS) == replace(TRAITS, architecture="x86_64", baseline=1.0)
    assert MachineTraits().filled(TRAITS) == TRAITS
