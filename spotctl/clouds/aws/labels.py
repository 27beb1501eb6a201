"""The tags on everything that is made for an order, and what can be read back from them. Pure.

Our own tags start with `spotctl.`; they hold what EC2 does not say about a machine, so no process has to remember it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from spotctl.clouds.aws.rows import Row
from spotctl.clouds.provider import MachineRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG

TOKEN, REQUEST, BID = "spotctl.token", "spotctl.request", "spotctl.bid"
"""The client token of the order, a hash of what may not change when it is repeated, and the bid in nano-dollars."""

GROUP = "spotctl.group"
"""On a security group or placement group: the run's, by its name."""

_OURS = frozenset({TOKEN, REQUEST, BID, GROUP})
_ON_DEMAND = "none"


def client_token(request: MachineRequest) -> str:
    """The token of a request, unique in an account that several installations share; EC2 allows 64 characters."""
    return hashlib.sha256(f"{request.tags.get(INSTALLATION_TAG, '')} {request.token}".encode()).hexdigest()


def request_hash(request: MachineRequest) -> str:
    """A hash of all that may not change when a request is repeated."""
    fixed = {
        "market": str(request.market),
        "count": request.count,
        "bid": request.bid,
        "tags": dict(request.tags),
        "payload": None if request.payload is None else request.payload.to_json(),
        "places": (request.image, request.identity, request.disk_gib, request.network),
        # Requests that earlier versions made keep their hash.
        **({"close": True} if request.close else {}),
        **({"reservation": request.reservation} if request.reservation else {}),
    }
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:32]


def tags_of_order(request: MachineRequest, company: Mapping[str, str]) -> dict[str, str]:
    """The tags on everything that is made for an order. `company` are the tags that the settings demand."""
    bid = _ON_DEMAND if request.bid is None else str(request.bid)
    ours = {TOKEN: client_token(request), REQUEST: request_hash(request), BID: bid}
    return {**company, **request.tags, **ours}


def tags_of_run(request: MachineRequest) -> dict[str, str]:
    """The tags on resources that all orders of a run share."""
    return {name: value for name, value in request.tags.items() if name != INTENT_TAG}


def group_name(request: MachineRequest) -> str:
    """The name of the run's security group."""
    return f"spotctl-{hashlib.sha256(json.dumps(tags_of_run(request), sort_keys=True).encode()).hexdigest()[:20]}"


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 takes them."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


def all_tags(row: Row) -> dict[str, str]:
    """The tags of anything that EC2 lists."""
    return {tag["Key"]: tag.get("Value", "") for tag in row.get("Tags", ())}


def own_tags(row: Row, company: Mapping[str, str]) -> dict[str, str]:
    """The tags of the request, without ours and the company's."""
    return {name: value for name, value in all_tags(row).items() if name not in _OURS and name not in company}


def bid_of(row: Row) -> int | None:
    """The bid of a machine."""
    bid = all_tags(row).get(BID, _ON_DEMAND)
    return None if bid == _ON_DEMAND else int(bid)


def filters_of(tags: Mapping[str, str]) -> dict[str, list[str]]:
    """The filters for resources with all of these tags; without any, for everything that spotctl made."""
    return {f"tag:{name}": [value] for name, value in tags.items()} or {"tag-key": [TOKEN, GROUP]}
