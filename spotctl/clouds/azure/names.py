"""Names and tags of spotctl's resources in Azure. They follow from the request, so a repeated request finds the first.

A run has one resource group. The machines that are bought together are one deployment in that, named after the token:
Azure keeps deployments after their machines are gone, so they record which tokens were served, and with what.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pricing_data.errors import BadMarket
from pricing_data.market import Market
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INTENT_TAG, RUN_TAG

GROUP_TAG, GROUP_MARK = "spotctl-group", "machines"
"""The tag that marks the resource groups that spotctl made."""
_TAG_PREFIX = "spotctl-order-"
_MARKET, _BID, _COUNT, _TOKEN, _FINGERPRINT, _IDENTITY, _NAMES, _INDEX = (
    f"{_TAG_PREFIX}{name}" for name in ("market", "bid", "count", "token", "fingerprint", "identity", "tags", "index")
)
_ON_DEMAND = "on demand"
_MAX_TAGS, _LONGEST_VALUE = 50, 256
_GROUP_STEM = "spotctl-"


@dataclass(frozen=True, slots=True)
class AzureOrder:
    """A request for machines, as the tags of its deployment and of each of its machines record it."""

    token: str
    market: Market
    bid: int | None
    count: int
    fingerprint: str
    identity: str
    tags: Mapping[str, str]

    @property
    def machine_names(self) -> tuple[str, ...]:
        return tuple(machine_name(self.token, index) for index in range(self.count))

    @classmethod
    def of(cls, request: MachineRequest, identity: str) -> AzureOrder:
        fingerprint, tags = fingerprint_of(request), dict(request.tags)
        return cls(request.token, request.market, request.bid, request.count, fingerprint, identity, tags)

    @classmethod
    def read(cls, tags: Mapping[str, str]) -> AzureOrder | None:
        """The order that tags describe; None: spotctl did not write them."""
        try:
            names = json.loads(tags[_NAMES])
            return cls(
                tags[_TOKEN],
                Market.parse(tags[_MARKET]),
                None if tags[_BID] == _ON_DEMAND else int(tags[_BID]),
                int(tags[_COUNT]),
                tags[_FINGERPRINT],
                tags[_IDENTITY],
                {str(name): tags[name] for name in names},
            )
        except (BadMarket, KeyError, TypeError, ValueError):
            return None

    def written(self, company: Mapping[str, str], index: int | None = None) -> dict[str, str]:
        """All tags of a deployment, or of its machine with this index."""
        own = {
            _TOKEN: self.token,
            _MARKET: str(self.market),
            _BID: _ON_DEMAND if self.bid is None else str(self.bid),
            _COUNT: str(self.count),
            _FINGERPRINT: self.fingerprint,
            _IDENTITY: self.identity,
            _NAMES: json.dumps(sorted(self.tags)),
        }
        place = {} if index is None else {_INDEX: str(index)}
        return checked({**company, **self.tags, **own, **place})


def checked(tags: dict[str, str]) -> dict[str, str]:
    """The tags, if Azure accepts them; otherwise BadRequest."""
    long = [name for name, value in tags.items() if len(value) > _LONGEST_VALUE]
    if long or len(tags) > _MAX_TAGS:
        problem = f"the value of tag {long[0]} is too long" if long else f"{len(tags)} tags are too many"
        raise BadRequest(
            f"{problem}; Azure takes up to {_MAX_TAGS} tags, with values of up to {_LONGEST_VALUE} characters"
        )
    return tags


def index_of(tags: Mapping[str, str]) -> int:
    """The number of a machine within its order, from 0."""
    return int(tags[_INDEX])


def group_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that mark a resource group and everything in it: the tags of its machines, except the intent."""
    return {name: value for name, value in tags.items() if name != INTENT_TAG}


def group_name(tags: Mapping[str, str]) -> str:
    """The resource group for machines with these tags, named after their run."""
    shared = group_tags(tags)
    run = re.sub(r"[^A-Za-z0-9_-]", "-", shared.get(RUN_TAG, ""))[:48]
    return f"{_GROUP_STEM}{run}{'-' if run else ''}{_digest(sorted(shared.items()))[:10]}"


def deployment_name(token: str) -> str:
    """The deployment that serves a token."""
    return f"{_GROUP_STEM}{_digest(token)[:16]}"


def machine_name(token: str, index: int) -> str:
    """The name of a virtual machine, which is also its host name."""
    return f"{deployment_name(token)}-{index}"


def zone_of(market: Market) -> str:
    """The number of a market's zone in its region, with which Azure names zones; `-` if the market has no zone."""
    return market.zone.removeprefix(f"{market.region}-")


def fingerprint_of(request: MachineRequest) -> str:
    """A hash of the parts of a request that must not change when it is repeated."""
    payload = None if request.payload is None else request.payload.to_json()
    places = (request.image, request.identity, request.disk_gib, request.network)
    fixed = [str(request.market), request.count, request.bid, sorted(request.tags.items()), payload, places]
    # Requests that earlier versions made keep their fingerprint.
    fixed += ["close"] if request.close else []
    return _digest(fixed)[:16]


@dataclass(frozen=True, slots=True)
class MachineId:
    """`azure:REGION:GROUP/NAME`: enough to find and delete a machine without any other knowledge."""

    region: str
    group: str
    name: str

    def __str__(self) -> str:
        return f"azure:{self.region}:{self.group}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> MachineId | None:
        """The machine of an id; None: spotctl has not made such a machine in Azure."""
        form = rf"azure:([a-z0-9]+):({_GROUP_STEM}[\w-]+)/({_GROUP_STEM}[\w-]+)"
        matched = re.fullmatch(form, text, re.ASCII)
        return None if matched is None else cls(*matched.groups())


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
