"""Who a launcher is to an object store: what the clouds' SDKs find, never a metadata service that
does not answer.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.aws.buckets import AwsLauncher
from spotctl.clouds.azure.cloud import AzureSettings
from spotctl.clouds.azure.session import storage_token
from spotctl.clouds.gcp.buckets import GoogleLauncher
from tests.servers.loopback import Reply, Request, serving


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


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


def test_a_service_account_of_google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Tokens:
        def answer(self, request: Request) -> Reply:
            assert request.method == "POST"
            return Reply.of_json(
                {"access_token": "earned", "expires_in": 3600, "token_type": "Bearer"}
            )

    key = generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    with serving(Tokens()) as server:
        account: dict[str, Any] = {
            "type": "service_account",
            "client_email": "a@b",
            "token_uri": f"{server.url}/token",
        }
        path = tmp_path / "account.json"
        path.write_text(json.dumps({**account, "private_key": key.decode(), "project_id": "p"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        token, seconds = GoogleLauncher().token()
    assert token == "earned"
    assert 3000 < seconds <= 3600


def test_credentials_of_google_that_are_missing_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere.json"))
    with pytest.raises(StoreRefused, match="Google sign-in"):
        GoogleLauncher().token()


def test_a_token_of_azure_is_for_storage() -> None:
    asked: list[tuple[str, ...]] = []

    class Credential:
        def get_token(self, *scopes: str, **_: object) -> AccessToken:
            asked.append(scopes)
            return AccessToken("earned", int(time.time()) + 3600)

    token, seconds = storage_token(AzureSettings(), Credential())
    assert (token, asked) == ("earned", [("https://storage.azure.com/.default",)])
    assert 3500 < seconds <= 3600
