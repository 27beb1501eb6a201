"""What no machine loads."""

from __future__ import annotations

from typing import get_args

import pytest

from spotctl.clouds.aws.session import Service
from spotctl.clouds.remote.bundle import is_left_out

LIBRARIES = {
    "p/lib/libx.so",
    "p/lib/libx.so.26",
    "p/lib/libx.so.26.1.0",
    "p/lib/liby.so",
    "p/lib/libz.so.1.1",
}


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("p/lib/libx.so", False),
        ("p/lib/libx.so.26", True),
        ("p/lib/libx.so.26.1.0", False),
        ("p/lib/liby.so", True),
        ("p/lib/libz.so.1.1", True),
        ("p/core.cpython-311-x86_64-linux-gnu.so", True),
        ("p/include/p.h", False),
        ("p/tests/test_p.py", False),
        ("pyarrow/libarrow_substrait.so.2600", True),
        ("pyarrow/libarrow_flight.so.2600", False),
        # A runner on a machine copies between buckets.
        ("botocore/data/s3/2006-03-01/service-2.json.gz", True),
        ("botocore/data/sqs/2012-11-05/service-2.json.gz", False),
        ("botocore/data/endpoints.json", True),
        # Only `try --full` asks it for evictions, from the computer that launches.
        ("botocore/data/fis/1/service-2.json.gz", False),
        *(
            (f"botocore/data/{service}/1/service-2.json.gz", True)
            for service in get_args(Service)
            if service != "fis"
        ),
    ],
)
def test_what_no_machine_loads_is_not_sent(name: str, sent: bool) -> None:
    assert is_left_out(name, LIBRARIES | {name}) is not sent
