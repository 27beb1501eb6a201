"""How the launcher proves to S3 who it is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.aws.buckets import AwsLauncher

pytestmark = pytest.mark.usefixtures("nothing")


def test_the_keys_and_the_region_of_a_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    (tmp_path / "credentials").write_text(
        "[work]\naws_access_key_id = A\naws_secret_access_key = S\n"
    )
    (tmp_path / "config").write_text("[profile work]\nregion = eu-west-1\n")
    who = AwsLauncher()
    keys = who.keys()
    assert (keys.key, keys.secret, keys.token, who.region()) == ("A", "S", "", "eu-west-1")
    assert keys.until > time.time() + 600


def test_keys_that_the_user_has_renewed_are_found(tmp_path: Path) -> None:
    """Launchers run longer than most session tokens are valid."""
    who = AwsLauncher()
    for name in ("old", "new"):
        keys = (
            f"aws_access_key_id = {name}\naws_secret_access_key = S\naws_session_token = {name}\n"
        )
        (tmp_path / "credentials").write_text(f"[default]\n{keys}")
        assert (who.keys().key, who.keys().token) == (name, name)


def test_no_credentials_of_aws_are_one_line() -> None:
    with pytest.raises(StoreRefused, match="no credentials"):
        AwsLauncher().keys()
