"""Contract and servers detect deliberate bugs of the providers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.clouds.provider_mutants import MUTANTS
from tests.spotctl.clouds.provider_mutation import ProviderMutant


@pytest.mark.sampled(20)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.cloud}: {mutant.name}")
def test_every_bug_is_detected(mutant: ProviderMutant, tmp_path: Path) -> None:
    mutant.trial(tmp_path / "without")
    assert mutant.caught(tmp_path / "with") is not None
