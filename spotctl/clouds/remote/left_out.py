"""Files of installed packages that machines do not load, so that they need not be packed and sent.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

_PATTERNS = (
    *("*.pyc", "*.pyi", "*.pyx", "*.pxd", "*.a", "*.h", "*.hpp"),
    # RPC, and an object store for which machines have obstore.
    *("pyarrow/*flight*", "pyarrow/libarrow_s3.*", "pyarrow/_s3fs.*"),
    *("pyarrow/_pyarrow_cpp_tests.*", "pyarrow/src/*"),
)

_SERVICES = (
    "ec2",
    "iam",
    "kms",
    "pricing",
    "s3",
    "service-quotas",
    "sso",
    "sso-oidc",
    "ssm",
    "sts",
)
"""The services of AWS that spotctl or the SDK's sign-in uses; the SDK has a folder for each
service."""

RULES = " ".join((*_PATTERNS, *_SERVICES))
"""The rules as part of an archive's key: other rules make other archives."""

_SERVICE = re.compile(r"botocore/data/([^/]+)/.+")
_LIBRARY = re.compile(r"(?P<name>.+\.so)(\.\d+){0,3}")


def is_left_out(name: str, names: Collection[str]) -> bool:
    """Whether a file is not sent; `names` are all files of its package."""
    if "tests" in name.split("/") or any(fnmatchcase(name, pattern) for pattern in _PATTERNS):
        return True
    service, library = _SERVICE.fullmatch(name), _LIBRARY.fullmatch(name)
    if service is not None and service[1] not in _SERVICES:
        return True
    if library is None:
        return False

    # Of the copies of a library, only lib.so.MAJOR is loaded.
    loaded = re.compile(re.escape(library["name"]) + r"\.\d+")
    return loaded.fullmatch(name) is None and any(loaded.fullmatch(other) for other in names)
