"""Orders of instances: their bodies and start-up, and the machines that lists show of them. Pure.

The script that starts a machine may have 4096 characters, and a variable 256, so the start-up
script of all clouds is cut into variables, which a short script puts together. Another has the
machine's ssh host key: the launcher made it, so it knows whom it talks to. Vast.ai and the host can
read both; they can read the machine's memory as well.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import Any

from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.order_ledger import OrderLabel
from spotctl.clouds.provider import MachineRequest, MachineState
from spotctl.clouds.vast.cloud import VastSettings
from spotctl.home.errors import BadRequest

_LONGEST_LABEL, _LONGEST_VALUE, _LONGEST_ENVIRONMENT = 256, 256, 32_768
_SCRIPT, _HOST_KEY = "SPOTCTL_START_", "SPOTCTL_HOST_KEY_"
_ON_START = f"""#!/bin/sh
pieces() {{ i=0; while eval "part=\\${{$1$i-}}" && [ -n "$part" ]; do printf %s "$part"; i=$((i + 1)); done; }}
umask 022
mkdir -p /etc/ssh /opt/spotctl
key=/etc/ssh/ssh_host_ed25519_key
(umask 077; pieces {_HOST_KEY} | base64 -d >$key.new) && mv $key.new $key && ssh-keygen -y -f $key >$key.pub
env | grep -E '^(PUBLIC_IPADDR|VAST_TCP_PORT_[0-9]+)=' >>/etc/environment
pieces {_SCRIPT} | base64 -d | gzip -d >/opt/spotctl/start_up
exec sh /opt/spotctl/start_up
"""
"""Installs the host key before the start-up script has sshd read it, lets programs see where others
reach the machine, and runs the start-up script."""


def body(
    request: MachineRequest,
    label: OrderLabel,
    settings: VastSettings,
    start_up: str,
    host_key: bytes,
) -> dict[str, Any]:
    """An order. A bid that is too low is refused, rather than kept as an instance that does not
    run.

    A `price` that is missing or null would buy on demand, so only an order on demand has none.
    """
    packed = gzip.compress(start_up.encode(), 9, mtime=0)
    variables = _pieces(_SCRIPT, packed) | _pieces(_HOST_KEY, host_key)
    for port in request.ports:
        # Docker's option, in the place of a variable, asks for a port.
        variables[f"-p {port}:{port}"] = "1"

    length = sum(len(name) + len(value) for name, value in variables.items())
    if length > _LONGEST_ENVIRONMENT:
        problem = (
            f"the start-up script of a machine would take {length} characters, but the limit is "
            f"{_LONGEST_ENVIRONMENT}: make the job's setup or environment shorter, for example by "
            "a script in the job's folder"
        )
        raise BadRequest(problem)

    order: dict[str, Any] = {
        "image": request.image or settings.image,
        "label": label.text(_LONGEST_LABEL),
        "disk": float(request.disk_gib or settings.disk_gib),
        "runtype": "ssh_direc ssh_proxy",
        "target_state": "running",
        "cancel_unavail": True,
        "env": variables,
        "onstart": _ON_START,
    }

    if label.bid is not None:
        order["price"] = label.bid / NANOS_PER_DOLLAR
    return order


def _pieces(name: str, content: bytes) -> dict[str, str]:
    text = base64.b64encode(content).decode()
    pieces = (text[at : at + _LONGEST_VALUE] for at in range(0, len(text), _LONGEST_VALUE))
    return {f"{name}{number}": piece for number, piece in enumerate(pieces)}


def state_of(row: Mapping[str, Any]) -> MachineState:
    """Where an instance is. One that has stopped was outbid, or taken by a renter on demand:
    spotctl stops none.
    """
    actual = row.get("actual_status")
    if row.get("cur_state") == "stopped" or actual in ("stopped", "exited"):
        return MachineState.PAUSED
    return MachineState.RUNNING if actual == "running" else MachineState.STARTING


def bid_of(row: Mapping[str, Any]) -> int | None:
    """The bid of an instance that runs, which is its price; None if it is paused, or was rented on
    demand.
    """
    costs = row.get("dph_base")
    if (
        row.get("is_bid") is not True
        or state_of(row) is MachineState.PAUSED
        or not isinstance(costs, int | float)
    ):
        return None
    return round(costs * NANOS_PER_DOLLAR)


def ssh_of(row: Mapping[str, Any]) -> tuple[str, int] | None:
    """The address and port of an instance's sshd: that of its host, or else that of Vast.ai's
    proxy.
    """
    for mapped in (row.get("ports") or {}).get("22/tcp") or ():
        if row.get("public_ipaddr"):
            return str(row["public_ipaddr"]).strip(), int(mapped["HostPort"])
    return (
        (str(row["ssh_host"]), int(row["ssh_port"]))
        if row.get("ssh_host") and row.get("ssh_port")
        else None
    )
