"""Families of types."""

from __future__ import annotations

import pytest

from spotctl.run.trial.machines import family_of


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("m6i.24xlarge", "m6i"),
        ("n2-standard-4", "n2-standard"),
        ("Standard_D4s_v5", "Standard_Ds_v5"),
        ("Standard_NC24ads_A100_v4", "Standard_NCads_A100_v4"),
        ("Standard_E4-2s_v5", "Standard_Es_v5"),
    ],
)
def test_a_family_is_a_types_name_without_its_size(name: str, family: str) -> None:
    assert family_of(name) == family
