"""Errors of botocore."""

from __future__ import annotations

import re

import pytest
from botocore.exceptions import (
    BotoCoreError,
    CredentialRetrievalError,
    EndpointConnectionError,
    InvalidConfigError,
    MissingDependencyException,
    UnauthorizedSSOTokenError,
)

from pricing_data.errors import (
    CloudError,
    MissingCredentials,
    MissingExtra,
    NoAnswer,
)
from spotctl.clouds.aws.session import translated


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (
            CredentialRetrievalError(provider="process", error_msg="helper died"),
            MissingCredentials,
            "helper died",
        ),
        (UnauthorizedSSOTokenError(), MissingCredentials, "aws sso login"),
        (
            InvalidConfigError(error_msg="role without source"),
            MissingCredentials,
            "role without source",
        ),
        (
            MissingDependencyException(msg='pip install "botocore[crt]"'),
            MissingExtra,
            'pip install "botocore[crt]"',
        ),
        (
            EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
            NoAnswer,
            "http://127.0.0.1:1",
        ),
    ],
)
def test_each_botocore_error_becomes_the_error_to_handle(
    error: BotoCoreError, kind: type[CloudError], reason: str
) -> None:
    with (
        pytest.raises(kind, match=re.escape(reason)) as raised,
        translated("eu-west-1", "signing in"),
    ):
        raise error
    assert str(raised.value).startswith("aws/eu-west-1: signing in: ")
