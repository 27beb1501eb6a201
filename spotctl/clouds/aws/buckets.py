"""Buckets of S3 for the launcher: its credentials, where a bucket is, and copies that S3 itself
makes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spotctl.agent.data.stores import COPY_BYTES, NoSuchObject, StoreRefused
from spotctl.clouds.aws.storage import (
    S3,
    AwsKeys,
    MachineRole,
    bucket_region,
    endpoint,
    signing_region,
)
from spotctl.clouds.store_calls import refused_as_store

if TYPE_CHECKING:
    from spotctl.clouds.aws.session import AwsSession

KEYS_SECONDS = 900.0
"""How long keys are used before the SDK, which renews them, is asked again."""


class AwsLauncher(MachineRole):
    """See `MachineRole`; credentials that boto3 finds on this computer, such as a profile."""

    def keys(self) -> AwsKeys:
        with refused_as_store():
            key, secret, token = self._session.keys()
        return AwsKeys(key, secret, token, time.time() + KEYS_SECONDS)

    def region(self) -> str:
        named = os.environ.get("AWS_REGION")
        if named:
            return named
        with refused_as_store():
            return self._session.sign_in() or ""

    @cached_property
    def _session(self) -> AwsSession:
        from spotctl.clouds.aws.session import AwsSession

        return AwsSession()


LAUNCHER = AwsLauncher()


def region_of(name: str, who: MachineRole) -> str:  # noqa: ARG001 - S3 tells everyone
    """The region of a bucket; empty if S3 does not say."""
    return bucket_region(f"{endpoint() or S3}/{name}")


def copy(key: str, source: str, target: str, who: MachineRole) -> None:
    """Copies the object of this name from one bucket to another; it appears when it is whole.
    StoreRefused: S3 does not."""
    from spotctl.clouds.aws.session import transfer_in_parts

    with _client(target, key, who) as client:
        client.copy(
            {"Bucket": source, "Key": key}, target, key, Config=transfer_in_parts(COPY_BYTES)
        )


def drop_abandoned(name: str, prefix: str, before: datetime, who: MachineRole) -> None:
    """Drops the parts of uploads that began before this moment and have not ended: their writers
    were killed.
    """
    with _client(name, prefix, who) as client:
        for page in client.get_paginator("list_multipart_uploads").paginate(
            Bucket=name, Prefix=prefix
        ):
            for upload in page.get("Uploads", ()):
                if upload["Initiated"] < before:
                    client.abort_multipart_upload(
                        Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"]
                    )


@contextmanager
def _client(name: str, key: str, who: MachineRole) -> Iterator[Any]:
    from spotctl.clouds.aws.session import s3_client

    region, keys = signing_region(name, who), who.keys()
    try:
        with s3_client((keys.key, keys.secret, keys.token), region, endpoint()) as client:
            yield client
    except OSError as error:
        kind = NoSuchObject if "(404)" in str(error) or "NoSuch" in str(error) else StoreRefused
        raise kind(f"s3://{name}/{key}: {error}") from error
