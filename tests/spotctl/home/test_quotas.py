"""Families that share a quota."""

from __future__ import annotations

from spotctl.home.quotas import quotas_from


def test_families_share_a_quota_by_the_letters_they_begin_with() -> None:
    (quota,) = quotas_from("aws/us-east-1/g+vt=64")
    covered = [
        name for name in ("g4dn", "vt1", "gr6", "c5") if quota.covers("aws", "us-east-1", name)
    ]
    assert covered == ["g4dn", "vt1"]
