"""Outages of a whole cloud, its store included: python -m tests.cloud.outages [--cloud gcp]
[--processes 2]

A job is launched on a simulated cloud. With one of up to five requests of a kind, the first among
them, every request of the launcher and of its machines begins to fail, for two minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from spotctl.cli.boundary import DONE, USAGE
from tests.cloud.aws import AwsServer
from tests.cloud.azure import AzureServer
from tests.cloud.clouds import SimulatedCloud, simulated
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import running
from tests.cloud.test_remote_matrix import stored
from tests.servers.aws import action_of
from tests.servers.loopback import Fault, LoopbackServer, Reply, Request

SECONDS = 120.0
COMMAND = """\
name: kept
kind: command
run: echo saved > $SPOTCTL_CHECKPOINT_DIR/step; sleep 20; echo 42 > $OUTPUT_RESULT/answer
workdir: work
hours: 1h
checkpoint: {{path: {bucket}/kept/, every: 10s}}
outputs: {{result: {bucket}/kept-out/}}
identity: {{{cloud}: {identity}}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]{more}}}
"""
TRAINING = """\
name: kept
kind: agileml
app: line:Line
args: {{pause: 0.05}}
workdir: work
stop: {{clocks: 60}}
throughputs: {{{type}: 600}}
outputs: {{model: {bucket}/kept-out/}}
identity: {{{cloud}: {identity}}}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}], machines: 2{more}}}
"""
RESULTS = {COMMAND: "kept-out/answer", TRAINING: "kept-out/model"}
"""The beginning of the key of each job's result."""

LAUNCHER, MACHINE = "launcher", "machine"
"""Where the runner is: with the launcher, or on the job's reliable machine."""

_LAUNCHES = {
    LAUNCHER: ("", ("--attached",)),
    MACHINE: (", reliable: {{machines: 1, type: {type}}}", ()),
}
"""Additions to the job file, and options of the launch."""


class CloudOutage(Fault):
    """Begins with a request, after `skip` others like it."""

    def __init__(self, begins: Callable[[Request], bool], skip: int) -> None:
        super().__init__("", Reply(503), skip=skip)
        self.begins = begins
        self.began_at: float | None = None

    def strikes(self, request: Request) -> bool:
        if self.began_at is None and self.begins(request):
            if self.skip == 0:
                self.began_at = time.monotonic()
            self.skip -= 1
        return self.began_at is not None and time.monotonic() < self.began_at + SECONDS


def doors(cloud: SimulatedCloud) -> tuple[LoopbackServer, ...]:
    """All servers of a cloud: its API, and its object store."""
    server = cloud.server
    if isinstance(server, AwsServer):
        return (server.server,)
    if isinstance(server, AzureServer):
        return (server.server, server.buckets.server)
    assert isinstance(server, GcpServer)
    return (server.http, server.buckets.server)


def kind_of(request: Request) -> str:
    """The name of a request: its action, or its method and what it is about."""
    resource = next(
        (part for part in reversed(unquote(request.path).split("/")) if part.isalpha()), ""
    )
    return action_of(request) or f"{request.method} {resource or 'object'}"


def outlived(
    name: str, kind: str, skip: int = 0, runner: str = LAUNCHER, job: str = COMMAND
) -> Counter[str]:
    """The kinds of the requests of a launch whose cloud fails; without a kind it never does.

    The job is done, its result is there, and nothing runs; or it was refused before anything was
    rented. A request that is not made is no outage: how often a run looks depends on the computer.
    """
    with tempfile.TemporaryDirectory() as folder, simulated(name) as cloud:
        laptop = Laptop(Path(folder), cloud.environment)
        laptop.run(
            "prices", "fetch", "--cloud", name, "--region", cloud.region, "--type", cloud.type
        )
        before = [len(door.requests) for door in doors(cloud)]
        outage = CloudOutage(lambda request: kind_of(request) == kind, skip)
        for door in doors(cloud):
            door.faults.append(outage)
        places = {
            "bucket": cloud.bucket,
            "region": cloud.region,
            "type": cloud.type,
            "identity": cloud.identity,
        }
        more, options = _LAUNCHES[runner]
        path = laptop.job(job.format(cloud=name, more=more.format(**places), **places))
        with laptop.launched("launch", path, *options, "--yes", "--json") as launched:
            code, out, err = launched.ended()
        assert running(cloud.server) == [], err
        assert cloud.server.resources() == (), out + err
        if code == USAGE:
            assert cloud.server.machines() == (), err
        else:
            assert (code, json.loads(out)["outcome"]) == (DONE, "done"), out + err
            assert any(key.startswith(RESULTS[job]) for key in stored(cloud))
            if kind == "TerminateInstances":
                # The machines are returned only once the cloud answers again.
                assert re.search(
                    "waiting for 1 machine to be gone, until .*; they cost at most .* an hour", err
                ), err
        return Counter(
            kind_of(one)
            for begin, door in zip(before, doors(cloud), strict=True)
            for one in door.requests[begin:]
        )


def positions(kinds: Counter[str]) -> Sequence[tuple[str, int]]:
    """Of each kind the first request, and of kinds that are common up to four later ones."""
    return [
        (kind, skip)
        for kind, count in sorted(kinds.items())
        for skip in sorted({count * quarter // 5 for quarter in range(5)})
    ]


def told(name: str, kind: str, skip: int) -> str:
    try:
        outlived(name, kind, skip)
    except Exception as error:  # noqa: BLE001  # one case that fails does not end the others
        return f"{name}: {kind} {skip}: FAILED: {error!r}"
    return f"{name}: {kind} {skip}: done, nothing runs"


def main() -> None:
    """All positions of one cloud."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cloud", default="aws")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    places = positions(outlived(given.cloud, ""))
    with ProcessPoolExecutor(given.processes) as pool:
        for line in pool.map(told, [given.cloud] * len(places), *zip(*places, strict=True)):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
