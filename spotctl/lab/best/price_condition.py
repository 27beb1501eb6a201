"""`PriceCondition`: what `spotctl lab prices watch` waits for."""

from collections.abc import Iterable
from dataclasses import dataclass

from spotctl.home.errors import BadRequest
from spotctl.lab.best.offers import SORTS, RankedOffer, ranked

_WORDS = {
    "price": "${:,.4g} per hour",
    "gpu": "${:,.4g} per GPU-hour",
    "vcpu": "${:,.4g} per vCPU-hour",
    "useful": "${:,.4g} per useful hour",
    "eviction": "{:.2%} evicted within an hour",
}


@dataclass(frozen=True, slots=True)
class PriceCondition:
    """A limit on a figure of `prices best --sort`; the condition holds while an offer is below the limit."""

    by: str
    below: float

    def __post_init__(self) -> None:
        if self.by not in _WORDS:
            raise BadRequest(f"--by {self.by!r} is not one of {', '.join(_WORDS)}")
        if not 0 < self.below < float("inf"):
            raise BadRequest(f"--below {self.below:g} must be above 0")

    @property
    def text(self) -> str:
        """`below $1.5 per GPU-hour`."""
        return f"below {_WORDS[self.by].format(self.below)}"

    def met_by(self, offers: Iterable[RankedOffer]) -> list[RankedOffer]:
        """The offers that meet the condition, the best first."""
        return [offer for offer in ranked(offers, self.by) if (self._figure(offer) or float("inf")) < self.below]

    def shown(self, offer: RankedOffer) -> str:
        """The offer's figure in words."""
        figure = self._figure(offer)
        return "unknown" if figure is None else _WORDS[self.by].format(figure)

    def _figure(self, offer: RankedOffer) -> float | None:
        return SORTS[self.by](offer)
