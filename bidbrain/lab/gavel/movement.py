"""The cost of moving a job between clouds, regions and zones: egress by the provider's tariff.

A dataset is moved to each cloud once (section 6.3.2 of the dissertation).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isfinite

from bidbrain.cost import BadEffectivePrice
from pricing_data.market import NO_ZONE, Market


@dataclass(frozen=True, slots=True)
class EgressTariff:
    """Dollars per GB of egress: to the internet or another cloud in tiers, to a region or a zone of
    the same cloud.

    `internet` has entries (up to this many GB a month, dollars per GB) in ascending order, the last
    one unbounded.
    """

    internet: tuple[tuple[float, float], ...]
    region_usd_per_gb: float
    zone_usd_per_gb: float

    def internet_usd(self, gigabytes: float, after_gb: float = 0.0) -> float:
        """Dollars for egress after `after_gb` this month. A free allowance is a tier of 0
        dollars."""
        below = 0.0
        total = 0.0
        for up_to, usd_per_gb in self.internet:
            within = min(after_gb + gigabytes, up_to) - max(after_gb, below)
            total += max(0.0, within) * usd_per_gb
            below = up_to
        return total


@dataclass(frozen=True)
class Movement:
    """The data that a job moves, and where its dataset is at the start.

    In addition to egress a move costs `hours` of paid time on the new machine without progress.
    Free egress allowances are not counted: they belong to an account, not to a job.
    """

    checkpoint_gb: float
    dataset_gb: float
    dataset_on: frozenset[str]
    hours: float
    tariffs: Mapping[str, EgressTariff]

    def __post_init__(self) -> None:
        for what, value in (
            ("checkpoint", self.checkpoint_gb),
            ("dataset", self.dataset_gb),
            ("move", self.hours),
        ):
            if not (isfinite(value) and value >= 0):
                raise BadEffectivePrice(
                    f"{what} of {value:g}: sizes in GB and hours must be at least 0"
                )
        if not self.dataset_on:
            raise BadEffectivePrice("the dataset is on no cloud: name at least one that holds it")

    def checkpoint_usd(self, source: Market, target: Market) -> float:
        """Egress cost of a checkpoint from one market to another."""
        if source.cloud != target.cloud:
            return self._internet(source.cloud, self.checkpoint_gb)
        if source.region != target.region:
            return self.checkpoint_gb * self._tariff(source.cloud).region_usd_per_gb
        if source.zone != target.zone and NO_ZONE not in (source.zone, target.zone):
            return self.checkpoint_gb * self._tariff(source.cloud).zone_usd_per_gb
        return 0.0

    def dataset_usd(self, cloud: str, held: Collection[str] = ()) -> float:
        """Egress cost of the dataset to a cloud, from the cheapest cloud that has it; nothing where
        it already is.

        `held` are the clouds it has reached since the start: it moves once per cloud.
        """
        clouds = self.dataset_on.union(held)
        if cloud in clouds or self.dataset_gb == 0:
            return 0.0
        return min(self._internet(source, self.dataset_gb) for source in sorted(clouds))

    def _internet(self, cloud: str, gigabytes: float) -> float:
        tariff = self._tariff(cloud)
        first_usd = tariff.internet[0][1]
        free = 0.0
        if first_usd == 0:
            free = tariff.internet[0][0]
        return tariff.internet_usd(gigabytes, after_gb=free)

    def _tariff(self, cloud: str) -> EgressTariff:
        try:
            return self.tariffs[cloud]
        except KeyError:
            raise BadEffectivePrice(
                f"no egress tariff for cloud {cloud!r} (known: {', '.join(sorted(self.tariffs))}): "
                "add one"
            ) from None
