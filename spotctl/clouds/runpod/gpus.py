"""Offers of RunPod: the GPU models and numbers in stock at each place, with the least bid and the
price on demand.

A place is a data center of the secure cloud, or a country of the community's. Sources: gpuhunt's
provider of RunPod (places, stock, prices for each GPU, minCudaVersion) and runpodctl 2
(minimumBidPrice, uninterruptablePrice).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pricing_data.market import Market
from pricing_data.sources.base import Rejects
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.gpu_markets import COUNTS, GIB_PER_GPU, VCPUS_PER_GPU, type_name
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.runpod.cloud import CLOUD_NAME, COMMUNITY, SECURE

_PLACES = "query places { countryCodes dataCenters { id listed } }"
_LOWEST = "{ minimumBidPrice uninterruptablePrice stockStatus }"


@dataclass(frozen=True, slots=True)
class PodOffer:
    """A number of GPUs of a model in stock, `gpu` in the API's words, with prices in nano-dollars
    for an hour of the pod; None where it is not sold so."""

    gpu: str
    market: Market
    gib: float
    bid: int | None
    on_demand: int | None


def regions(calls: RunPodCalls, *, community: bool) -> list[str]:
    """The regions of all places. Raises `CloudError`."""
    data = calls.ask("places", _PLACES, public=True)
    places = [center["id"] for center in data["dataCenters"] or () if center["listed"]]
    if community:
        places += [code for code in data["countryCodes"] or () if code]
    return [f"{CLOUD_NAME}-{place.lower()}" for place in places]


def place_of(region: str) -> dict[str, str]:
    """The field of the API that names a region's place: only a data center has a dash.

    >>> place_of("runpod-us-tx-3"), place_of("runpod-ca")
    ({'dataCenterId': 'US-TX-3'}, {'countryCode': 'CA'})
    """
    place = region.removeprefix(f"{CLOUD_NAME}-").upper()
    return {"dataCenterId" if "-" in place else "countryCode": place}


def hardware(count: int, cuda: float) -> dict[str, object]:
    """The hardware that a pod of this many GPUs needs, as queries and orders name it."""
    return {
        "gpuCount": count,
        "minVcpuCount": VCPUS_PER_GPU * count,
        "minMemoryInGb": GIB_PER_GPU * count,
        "minCudaVersion": str(cuda),
        # Only a public address has a port for ssh.
        "supportPublicIp": True,
    }


def offers_in(
    calls: RunPodCalls,
    region: str,
    cuda: float,
    rejects: Rejects,
    counts: tuple[int, ...] = COUNTS,
) -> Iterator[PodOffer]:
    """Yields what is in stock at a place, without unusable rows. Raises `CloudError`."""
    place = place_of(region)
    zone = SECURE if "dataCenterId" in place else COMMUNITY
    inputs = {
        f"of{count}": {**hardware(count, cuda), **place, "secureCloud": zone == SECURE}
        for count in counts
    }
    names = ", ".join(f"${name}: GpuLowestPriceInput" for name in inputs)
    asked = "\n".join(f"{name}: lowestPrice(input: ${name}) {_LOWEST}" for name in inputs)
    query = f"query offers({names}) {{ gpuTypes {{ id displayName memoryInGb {asked} }} }}"
    for gpu in calls.ask(f"offers in {region}", query, inputs, public=True)["gpuTypes"]:
        for count in counts:
            try:
                lowest, gib = gpu[f"of{count}"] or {}, float(gpu["memoryInGb"] or 0)
                # The default image is for NVIDIA's GPUs; the API has a model that it calls unknown.
                is_usable = gib > 0 and not str(gpu["id"]).startswith(("AMD", "unknown"))
                if not is_usable or lowest.get("stockStatus") in (None, "None"):
                    continue

                name = type_name(str(gpu["displayName"]), count, gib)
                market = Market(CLOUD_NAME, region, zone, name)
                bid, fixed = (
                    round(float(price) * count * NANOS_PER_DOLLAR) if price else None
                    for price in (lowest["minimumBidPrice"], lowest["uninterruptablePrice"])
                )
                if any(price is not None and price <= 0 for price in (bid, fixed)):
                    raise ValueError(f"prices of {bid} and {fixed} nano-dollars")
                yield PodOffer(str(gpu["id"]), market, gib, bid, fixed)
            except (KeyError, TypeError, ValueError, ArithmeticError) as error:
                rejects.add(f"{count}x {gpu.get('id')} in {region}: {error!r}")
