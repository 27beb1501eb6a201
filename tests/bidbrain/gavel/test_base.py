"""Names of policies."""

from __future__ import annotations

import pytest

from bidbrain.gavel.policies import POLICIES, UnknownPolicy, policy_named


def test_every_policy_is_found_by_its_name() -> None:
    assert len(POLICIES) == 14
    with pytest.raises(
        UnknownPolicy, match="policy 'best' is unknown \\(known: max-min-fairness, makespan"
    ):
        policy_named("best")
