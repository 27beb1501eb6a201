"""Certificates that every process derives from the job's secret."""

from __future__ import annotations

from base64 import b64decode

import pytest

from agileml.transport import (
    BadSecret,
)
from agileml.transport.certificates import (
    certificate_and_key,
    credentials_of,
    job_mark,
)
from tests.agileml.transport.links import SECRET
from tests.agileml.transport.test_tls import OTHER


def test_every_process_derives_the_same_certificate_from_the_secret() -> None:
    """Both sides made theirs alone, and one that was made in an hour with a wrong clock would be
    the same.
    """
    made = [certificate_and_key(secret) for secret in (SECRET, SECRET, OTHER)]
    assert made[0] == made[1]
    assert made[0][0] != made[2][0]
    assert made[0][1] != made[2][1]


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(BadSecret, match="use at least 16"):
        credentials_of(b"short", "t1")


def test_credentials_hold_neither_the_secret_nor_another_nodes_key() -> None:
    mine, others = credentials_of(SECRET, "t1"), credentials_of(SECRET, "t2")
    assert credentials_of(mine.encoded(), "t1") == mine
    assert (
        (mine.authority, mine.job)
        == (others.authority, others.job)
        == (certificate_and_key(SECRET)[0], job_mark(SECRET))
    )
    content = b64decode(mine.encoded().removeprefix(b"agileml-node:"))
    for hidden in (SECRET, others.key, certificate_and_key(SECRET)[1]):
        assert hidden not in content


@pytest.mark.parametrize(
    "encoded", [b"agileml-node:", b"agileml-node:AAAA", b"agileml-node:\xff\xfe"], ids=str
)
def test_damaged_credentials_are_refused(encoded: bytes) -> None:
    with pytest.raises(BadSecret, match="the credentials of node 't1' are damaged"):
        credentials_of(encoded, "t1")


def test_credentials_are_for_one_name() -> None:
    with pytest.raises(BadSecret, match="are for node 't1', not for 't2': join under that name"):
        credentials_of(credentials_of(SECRET, "t1").encoded(), "t2")
