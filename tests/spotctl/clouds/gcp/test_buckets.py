"""How the launcher proves to Cloud Storage who it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.gcp.buckets import GoogleLauncher
from tests.servers.loopback import Reply, Request, serving

pytestmark = pytest.mark.usefixtures("nothing")


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
