"""`RunPodProvider`: pods of RunPod, which are containers in its data centers or on machines of hosts,
rented on demand or by bid.

RunPod chooses the machine, in the place that a market names. A pod has no label, so that a variable
has it, which lists show; others have the start-up script, the machine's ssh host key and the moment
of the order. Its first process is a script that puts these together, waits, and notes the signal
that comes before a pod is taken back.

States (docs.runpod.io, "Manage Pods"; the official client's fields; `lastStatusChange` as public
reports quote it): one that RUNS has a `runtime` once its container does. EXITED by RunPod, with a
bid, was outbid, unless that was within ten seconds of its order: then its image could not be started.
Two public reports have the same words for that, after two seconds and six, without a reason.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pricing_data.market import Market
from pricing_data.sources.base import Rejects
from pricing_data.units import NANOS_PER_DOLLAR, SECOND
from spotctl.clouds.errors import Answers, ApiRecord, NotFound, UnknownRefusal, in_contract
from spotctl.clouds.gpu_markets import cuda_of
from spotctl.clouds.labelled import Listed, Purchase
from spotctl.clouds.order_ledger import Number, OrderLabel, OrderLedger
from spotctl.clouds.provider import SAME_BID, Holdings, MachineRequest, MachineState
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.clouds.remote.containers import ContainerProvider
from spotctl.clouds.remote.prices import holdings_of
from spotctl.clouds.runpod import gpus
from spotctl.clouds.runpod.calls import RunPodCalls, of_call
from spotctl.clouds.runpod.cloud import CLOUD_NAME, SECURE, RunPodSettings, address
from spotctl.clouds.runpod.prices import STORAGE

if TYPE_CHECKING:
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings

_LONGEST_LABEL = 1_000
_AT_ONCE_SECONDS = 10
_DATE = re.compile(r"\w{3} (\w{3} \d\d? \d{4} \d\d:\d\d:\d\d) GMT")
_LABEL, _ORDERED, _SCRIPT, _HOST_KEY = (
    f"SPOTCTL_{name}" for name in ("LABEL", "ORDERED", "START", "HOST_KEY")
)
_FIRST = f"""umask 022
if ! [ -x /usr/sbin/sshd ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qy update && apt-get -qy install openssh-server
fi
mkdir -p /etc/ssh /opt/spotctl /run/sshd
key=/etc/ssh/ssh_host_ed25519_key
(umask 077; printf %s "${_HOST_KEY}" | base64 -d >$key.new) && mv $key.new $key
command -v ssh-keygen >/dev/null && ssh-keygen -y -f $key >$key.pub
env | grep -E '^(RUNPOD_PUBLIC_IP|RUNPOD_TCP_PORT_[0-9]+)=' >>/etc/environment
printf %s "${_SCRIPT}" | base64 -d | gzip -d >/opt/spotctl/start_up
/usr/sbin/sshd -o UsePAM=no
rm -f /opt/spotctl/signalled
trap 'touch /opt/spotctl/signalled' TERM
sh /opt/spotctl/start_up &
while :; do sleep 3600 & wait $!; done
"""
"""Starts sshd, which most images of others lack, and the start-up script. When its first process ends,
RunPod starts a pod again. PAM would refuse logins in containers that may not set the login's user."""


def state_of(row: ApiRecord, ordered: int) -> tuple[MachineState, str]:
    """The state of a pod that was ordered at a moment, and its failure. One that is paused without
    a failure was outbid.

    >>> state_of({"desiredStatus": "EXITED", "podType": "INTERRUPTABLE"}, 0)
    (<MachineState.PAUSED: 'paused'>, '')
    """
    status, said = row["desiredStatus"], str(row.get("lastStatusChange") or "")
    has_gpus = row.get("gpuCount") != 0
    if (status == "RUNNING" and has_gpus) or status in ("CREATED", "RESTARTING"):
        runs = status == "RUNNING" and row.get("runtime")
        return MachineState.RUNNING if runs else MachineState.STARTING, ""

    dated = _DATE.search(said)
    at_once = False
    if dated is not None:
        ended = datetime.strptime(f"{dated[1]} +0000", "%b %d %Y %H:%M:%S %z")
        at_once = ended.timestamp() - ordered / SECOND < _AT_ONCE_SECONDS
    failures = (
        (status == "RUNNING", "it runs without GPUs: others have those of its machine"),
        (status == "DEAD", f"its machine is gone: {said}"),
        (said.lower().startswith("exited by user"), "its user stopped it"),
        (
            row.get("podType") == "RESERVED",
            "stopped by RunPod, or because the credit of the account is used up",
        ),
        (at_once, "stopped at once by RunPod: its image is too large, or not there"),
    )
    return MachineState.PAUSED, next((why for applies, why in failures if applies), "")


class RunPodProvider(ContainerProvider):
    """See the module's text and `CloudProvider`."""

    name, number_type = CLOUD_NAME, str

    def __init__(
        self,
        calls: RunPodCalls,
        settings: RunPodSettings,
        ledger: OrderLedger,
        agents: RemoteAgents,
        prices: PriceBook,
    ) -> None:
        super().__init__(calls, ledger, agents, prices)
        self._calls, self._settings = calls, settings

    def on_offer(self, request: MachineRequest) -> Iterator[Purchase]:
        market, is_fixed = request.market, request.bid is None
        most = self._prices.on_demand(market) if request.bid is None else request.bid
        cuda = cuda_of(request.image or self._settings.image)
        count = int(market.instance_type.partition("x")[0])
        with in_contract(of_call):
            unread = Rejects("offers")
            offers = [*gpus.offers_in(self._calls, market.region, cuda, unread, (count,))]

        for offer in offers:
            price = offer.on_demand if is_fixed else offer.bid
            if offer.market == market and price is not None and price <= most:
                given = {
                    "gpuTypeId": offer.gpu,
                    **gpus.hardware(count, cuda),
                    **gpus.place_of(market.region),
                    "cloudType": "SECURE" if market.zone == SECURE else "COMMUNITY",
                }
                for _ in range(request.count):
                    yield None, partial(self._buy, request, count, given)

    def _buy(
        self, request: MachineRequest, count: int, given: dict[str, Any], label: OrderLabel
    ) -> str:
        """Rents a pod without a volume: one that is stopped then costs nothing."""
        private, _ = self._agents.host_key(label.machine)
        start_up = self._agents.start_up(request, CLOUD_NAME)
        variables = {
            _LABEL: label.text(_LONGEST_LABEL),
            _ORDERED: str(self.now()),
            _SCRIPT: base64.b64encode(gzip.compress(start_up.encode(), 9, mtime=0)).decode(),
            _HOST_KEY: base64.b64encode(private).decode(),
            # As dstack orders: the first process is root's, whatever the image says.
            "RUNPOD_POD_USER": "0",
        }
        order: dict[str, Any] = {
            **given,
            "name": f"spotctl-{label.order}-{label.index}",
            "imageName": request.image or self._settings.image,
            "containerDiskInGb": request.disk_gib or self._settings.disk_gib,
            "volumeInGb": 0,
            "ports": ",".join(f"{port}/tcp" for port in (22, *request.ports)),
            "dockerArgs": json.dumps({"cmd": [_FIRST], "entrypoint": ["/bin/sh", "-c"]}),
            "env": [{"key": name, "value": value} for name, value in variables.items()],
        }
        if label.bid is not None:
            order["bidPerGpu"] = label.bid / count / NANOS_PER_DOLLAR
        return self._calls.order(order)

    def read_back(self, number: Number, bid: int | None) -> None:
        """See `LabelledProvider`."""
        row = self._calls.instance(number)
        if bid is None or row is None:
            return
        costs = round(float(row.get("costPerHr") or 0.0) * NANOS_PER_DOLLAR)
        if row.get("podType") == "RESERVED" or costs > bid * (1 + SAME_BID):
            machine = self.machine_id(number)
            self.terminate([machine])
            problem = f"{machine}: ordered with a bid, but sold for more, so it was ended"
            raise UnknownRefusal(problem, "no bid")

    def shown(self, row: ApiRecord) -> Listed | None:
        variables = dict(str(line).partition("=")[::2] for line in row.get("env") or ())
        label, ordered = OrderLabel.parse(variables.get(_LABEL)), variables.get(_ORDERED, "")
        if label is None or not ordered.isdigit():
            return None

        state, failure = state_of(row, int(ordered))
        costs, bid = row.get("costPerHr"), None
        if label.bid is not None and state is not MachineState.PAUSED and costs:
            bid = round(float(costs) * NANOS_PER_DOLLAR)
        ssh = None
        for port in (row.get("runtime") or {}).get("ports") or ():
            if port["privatePort"] == 22 and port["isIpPublic"]:
                ssh = str(port["ip"]), int(port["publicPort"])
        sign = str(row.get("lastStatusChange") or "")
        return Listed(label, state, int(ordered), bid, failure, ssh, sign)

    # Its image has no size of its own there.
    def holdings(
        self,
        market: Market,
        *,
        spot: bool,
        disk_gib: int | None,
        image: str | None = None,  # noqa: ARG002
    ) -> Holdings:
        gib = disk_gib or self._settings.disk_gib
        return holdings_of(market, self._prices.lists(), STORAGE, gib, spot=spot, public_ip=False)

    def check_order(self, request: MachineRequest) -> str:
        """See `CloudProvider`. RunPod checks no order, but says what is in stock."""
        if next(self.on_offer(request), None) is None:
            raise NotFound(f"{request.market}: not in stock at this price now")
        return request.image or self._settings.image


def provider(
    settings: Settings,
    # The account's pods are listed in all places at once.
    regions: tuple[str, ...],  # noqa: ARG001
    agents: RemoteAgents,
    prices: PriceBook,
    answers: Answers,  # noqa: ARG001 - it checks no orders
) -> RunPodProvider:
    """See `ProviderPart`."""
    calls = RunPodCalls(address(settings.text("runpod_url")))
    ledger = OrderLedger(settings.home / CLOUD_NAME / "orders")
    own = settings.table(CLOUD_NAME, RunPodSettings)
    return RunPodProvider(calls, own, ledger, agents, prices)
