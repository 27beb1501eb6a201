"""An account of simulated EC2 without processes, and what tests of requests and refusals do to
it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pytest
from moto.ec2.models import ec2_backends

from tests.cloud.aws import AwsServer
from tests.cloud.aws_books import End, Lease
from tests.cloud.host import MachineHost, Records
from tests.servers.aws import action_of, arguments_of, ec2_error
from tests.servers.loopback import Reply, Request
from tests.waiting import eventually

NO_INSTANCES = Reply(
    200,
    b"<DescribeInstancesResponse><requestId>0-0</requestId><reservationSet/></DescribeInstancesResponse>",
    {"Content-Type": "text/xml"},
)


@dataclass
class Ec2(AwsServer):
    """`hidden` is how many of the next lists are empty, `page` the largest page, and the answer to
    the next request of the action `lost_after` is lost after it was carried out. Requests need no
    tags, unless a `policy` is set."""

    hidden: int = 0
    page: int = 1000
    lost_after: str = ""
    policy: Mapping[str, Any] | None = None

    def answer(self, request: Request) -> Reply:
        action = action_of(request)
        if action == "DescribeInstances" and self.hidden > 0:
            self.hidden -= 1
            return NO_INSTANCES
        body = request.body.replace(b"MaxResults=1000", f"MaxResults={self.page}".encode())
        headers = {
            name: value for name, value in request.headers.items() if name != "content-length"
        }
        reply = super().answer(Request(request.method, request.path, request.query, headers, body))
        if action and action == self.lost_after:
            self.lost_after = ""
            return ec2_error("InternalError", "lost", 500)
        return reply

    def asked(self, action: str) -> list[dict[str, str]]:
        """The arguments of each request for an action."""
        return [
            arguments_of(request)
            for request in self.server.requests
            if action_of(request) == action
        ]

    def backend(self, region: str) -> Any:  # noqa: ANN401 - moto's
        """moto's part of the account."""
        return ec2_backends[self.account][region]

    def lease(self, machine: str) -> Lease:
        """What is rented under the id of a machine of ours."""
        return self.books.leases[machine.rsplit(":", maxsplit=1)[-1]]

    def end(self, machine: str, code: str, at: datetime, *, dated: bool = True) -> None:
        """Ends an instance for a reason, such as `Server.SpotInstanceTermination`; `dated` says it
        with the time.
        """
        lease = self.lease(machine)
        lease.ended, lease.end = (
            round(at.timestamp() * 1e6),
            End(code, code, "", "instance-terminated-no-capacity"),
        )
        self.books._conclude(lease)
        lease.instance._reason = f"Said ({at:%Y-%m-%d %H:%M:%S} GMT)" if dated else ""
        if lease.request is not None:
            lease.request.status["UpdateTime"] = at

    def wait(self) -> None:
        """Returns when nothing is ending any more."""
        eventually(lambda: all(one.state != "shutting-down" for one in self.machines()))


Server = TypeVar("Server", bound=AwsServer)


@contextmanager
def running_ec2(
    environment: pytest.MonkeyPatch, kind: type[Server], host: MachineHost | None = None
) -> Iterator[Server]:
    """An account for the duration of a `with` block; boto3's environment points only to it."""
    world = kind(host or Records())
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        environment.delenv(name)
    for name, value in world.environment().items():
        environment.setenv(name, value)
    # botocore's delays between retries cannot be configured.
    environment.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    try:
        yield world
    finally:
        world.close()
