"""Has Resource Manager validate a deployment without carrying it out; and the key that every machine must have."""

from __future__ import annotations

import time
from typing import Final

from spotctl.clouds.azure.calls import AzureCalls, Body, TrialOperation
from spotctl.clouds.azure.refusals import refused
from spotctl.clouds.errors import Unanswered

_PATIENCE_SECONDS: Final = 120.0


def validate(calls: AzureCalls, group: str, name: str, body: Body, poll_seconds: float) -> None:
    """Raises the refusal of a deployment that Azure would not begin. Unanswered: the validation takes too long."""
    answer = calls.send(TrialOperation.VALIDATE, body, group=group, name=name)
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while answer.status == 202:
        if time.monotonic() >= give_up:
            raise Unanswered(f"Azure has not validated {name} after {_PATIENCE_SECONDS:g} s")
        time.sleep(poll_seconds)
        answer = calls.follow(TrialOperation.VALIDATE, answer)
    if error := answer.body.get("error"):
        cause = (error.get("details") or [error])[0]
        raise refused(
            str(cause.get("code", "")), f"Azure refuses the deployment: {cause.get('code')} {cause.get('message')}"
        )


def unusable_key() -> str:
    """A public key for the account that Azure insists on; its private half is thrown away."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
