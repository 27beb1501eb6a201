"""How a rented machine starts, and how it is reached then.

The user-data of a machine is `start_up.sh` with the values of one request. `RemoteMachine` is a
provider's description of a machine that has booted with it.
"""

from __future__ import annotations

import base64
import gzip
import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pricing_data.known_clouds import has_part, part_of
from spotctl.agent.lease import self_deletion
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest

USER = "spotctl"
"""The user that the start-up script creates: it runs the payloads, and the launcher logs in as
it."""


@dataclass(frozen=True, slots=True)
class RemoteMachine:
    """A machine that boots with our start-up script. `index` is its number within its request, from
    0.

    `console` returns the console output that the cloud shows by now, which proves the machine's ssh
    host key, or raises an error of a provider. `gone` says whether the cloud has ended the machine.
    Both are called from threads of `RemoteAgents`.
    """

    id: str
    index: int
    host: str
    port: int
    console: Callable[[], str]
    gone: Callable[[], bool]
    user: str = USER


MAX_BYTES = 12 * 1024
"""The longest script; EC2 takes 16 KiB before its own encoding."""


def start_up_script(request: MachineRequest, cloud: str, public_key: str, now: int) -> str:
    """The script. `now` is the moment of the request on the provider's clock. BadRequest: the
    payload is too large.
    """
    payload = None if request.payload is None else request.payload.to_json()
    machine = {"cloud": cloud, "lease_until": request.lease_until, "payload": payload}
    # Where switching off is enough, a cloud has no way of its own in which machines delete
    # themselves.
    deletion = b""
    if has_part(cloud, "self_deletion"):
        path = part_of(cloud, "self_deletion").__file__
        assert path is not None
        deletion = Path(path).read_bytes()

    values = {
        "@USER@": USER,
        "@CONTAINERS@": "yes" if request.containers else "",
        "@LEASE_UNTIL@": str(request.lease_until // 1_000_000),
        "@LEASE_SECONDS@": str(max(request.lease_until - now, 0) // 1_000_000),
        "@PUBLIC_KEY@": f"restrict,port-forwarding,pty {public_key}",
        "@SELF_DELETION@": _packed(Path(self_deletion.__file__).read_bytes()),
        "@THIS_CLOUD@": _packed(deletion),
        "@MACHINE@": _packed(json.dumps(machine, separators=(",", ":")).encode()),
    }

    script = Path(__file__).with_name("start_up.sh").read_text()
    for name, value in values.items():
        script = script.replace(name, value)
    if len(script.encode()) > MAX_BYTES:
        problem = (
            f"the start-up script of a machine would be {len(script.encode())} bytes long, but "
            f"the limit is {MAX_BYTES}: make the job's setup or environment shorter, for example "
            "by a script in the job's folder"
        )
        raise BadRequest(problem)

    return script


def _packed(content: bytes) -> str:
    return "\n".join(
        textwrap.wrap(base64.b64encode(gzip.compress(content, 9, mtime=0)).decode(), 120)
    )
