"""Orders of instances: their labels, bodies and start-up, and the machines that lists show of them. Pure.

Vast.ai has no client tokens. So an order carries a label that a list shows: which order of which run it is, and which
of the order's machines. A machine that was ordered twice would have the same label twice.

The script that starts a machine may have 4096 characters, and a variable 256, so the start-up script of all clouds is
cut into variables, which a short script puts together. Another has the machine's ssh host key: the launcher made it, so
it knows whom it talks to. Vast.ai and the host can read both; they can read the machine's memory as well.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.provider import MachineRequest, MachineState, fingerprint
from spotctl.clouds.vast.cloud import CLOUD_NAME, VastSettings
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG

PREFIX = f"{CLOUD_NAME}:"
_MARK = "spotctl"
_LONGEST_LABEL, _LONGEST_VALUE, _LONGEST_ENVIRONMENT = 256, 256, 32_768
_SHORT = {INSTALLATION_TAG: "i", RUN_TAG: "r", INTENT_TAG: "n"}
_LONG = {short: tag for tag, short in _SHORT.items()}
_SCRIPT, _HOST_KEY = "SPOTCTL_START_", "SPOTCTL_HOST_KEY_"
_ON_START = f"""#!/bin/sh
pieces() {{ i=0; while eval "part=\\${{$1$i-}}" && [ -n "$part" ]; do printf %s "$part"; i=$((i + 1)); done; }}
umask 022
mkdir -p /etc/ssh /opt/spotctl
key=/etc/ssh/ssh_host_ed25519_key
(umask 077; pieces {_HOST_KEY} | base64 -d >$key.new) && mv $key.new $key && ssh-keygen -y -f $key >$key.pub
pieces {_SCRIPT} | base64 -d | gzip -d >/opt/spotctl/start_up
exec sh /opt/spotctl/start_up
"""
"""Installs the host key before the start-up script has sshd read it, and runs that script."""


@dataclass(frozen=True, slots=True)
class VastLabel:
    """The content of a label. `order` stands for the token, `print` for the whole request; `bid` None: on demand."""

    order: str
    index: int
    print: str
    bid: int | None
    market: Market
    tags: Mapping[str, str]

    @classmethod
    def of(cls, request: MachineRequest, index: int) -> Self:
        return cls(order_of(request.token), index, fingerprint(request), request.bid, request.market, request.tags)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """The label of an instance; None if it is not one of ours."""
        words = (text or "").split(" ")
        if len(words) != 7 or words[0] != _MARK:
            return None
        _, order, index, print_, bid, market, tags = words
        try:
            known = {_LONG.get(name, name): value for name, value in parse_qsl(tags, keep_blank_values=True)}
            return cls(order, int(index), print_, None if bid == "-" else int(bid), Market.parse(market), known)
        except (ValueError, BadInput):
            return None

    @property
    def machine(self) -> str:
        """A name of the machine that is known before it is ordered."""
        return f"{self.order} {self.index}"

    def __str__(self) -> str:
        tags = urlencode({_SHORT.get(name, name): value for name, value in self.tags.items()})
        bid = "-" if self.bid is None else self.bid
        text = f"{_MARK} {self.order} {self.index} {self.print} {bid} {self.market} {tags}"
        if len(text) > _LONGEST_LABEL:
            raise BadRequest(
                f"vast: the label of an instance would have {len(text)} characters, but the limit is {_LONGEST_LABEL}:"
                " give the job a shorter name, or fewer tags"
            )
        return text


def order_of(token: str) -> str:
    """The part of a label that stands for a token."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def body(
    request: MachineRequest, label: VastLabel, settings: VastSettings, start_up: str, host_key: bytes
) -> dict[str, Any]:
    """An order. A bid that is too low is refused, rather than kept as an instance that does not run.

    A `price` that is missing or null would buy on demand, so only an order on demand has none.
    """
    variables = {
        **_pieces(_SCRIPT, gzip.compress(start_up.encode(), 9, mtime=0)),
        **_pieces(_HOST_KEY, host_key),
    }
    if (length := sum(map(len, (*variables, *variables.values())))) > _LONGEST_ENVIRONMENT:
        raise BadRequest(
            f"the start-up script of a machine would take {length} characters, but the limit is {_LONGEST_ENVIRONMENT}:"
            " make the job's setup or environment shorter, for example by a script in the job's folder"
        )
    order: dict[str, Any] = {
        "image": request.image or settings.image,
        "label": str(label),
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


def machine_id(contract: int) -> str:
    return f"{PREFIX}{contract}"


def contract_of(machine: str) -> int | None:
    """The number of an instance; None for any other id."""
    number = machine.removeprefix(PREFIX)
    return int(number) if machine.startswith(PREFIX) and number.isascii() and number.isdigit() else None


def state_of(row: Mapping[str, Any]) -> MachineState:
    """Where an instance is. One that has stopped was outbid, or taken by a renter on demand: spotctl stops none."""
    actual = row.get("actual_status")
    if row.get("cur_state") == "stopped" or actual in ("stopped", "exited"):
        return MachineState.PAUSED
    return MachineState.RUNNING if actual == "running" else MachineState.STARTING


def bid_of(row: Mapping[str, Any]) -> int | None:
    """The bid of an instance that runs, which is its price; None if it is paused, or was rented on demand."""
    costs = row.get("dph_base")
    if row.get("is_bid") is not True or state_of(row) is MachineState.PAUSED or not isinstance(costs, int | float):
        return None
    return round(costs * NANOS_PER_DOLLAR)


def started_at(row: Mapping[str, Any]) -> int | None:
    """When an instance was made, as its list says."""
    seconds = row.get("start_date")
    return round(seconds * 1e6) if isinstance(seconds, int | float) else None


def ssh_of(row: Mapping[str, Any]) -> tuple[str, int] | None:
    """The address and port of an instance's sshd: that of its host, or else that of Vast.ai's proxy."""
    for mapped in (row.get("ports") or {}).get("22/tcp") or ():
        if row.get("public_ipaddr"):
            return str(row["public_ipaddr"]).strip(), int(mapped["HostPort"])
    return (str(row["ssh_host"]), int(row["ssh_port"])) if row.get("ssh_host") and row.get("ssh_port") else None


def ours(rows: list[Mapping[str, Any]]) -> Iterator[tuple[VastLabel, Mapping[str, Any]]]:
    """The instances that spotctl ordered, with their labels."""
    for row in rows:
        if (label := VastLabel.parse(row.get("label"))) is not None:
            yield label, row
