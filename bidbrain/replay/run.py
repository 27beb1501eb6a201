"""A job to replay, and what became of it: the machines that were rented, and when the work was done."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bidbrain.billing import End, Life
from bidbrain.replay.spending import ReplayedBudget
from bidbrain.strategies.base import Holding, Offer, Rent, gang_works


@dataclass(frozen=True, slots=True)
class Tenure:
    """Machines of one allocation that ended together, from start to end."""

    rent: Rent
    start: int
    ready: int
    end: int
    ended: End

    @property
    def life(self) -> Life:
        """The life of each of its machines, for billing."""
        return Life(self.start, self.end, self.ended)


@dataclass(frozen=True, slots=True)
class ReplayedJob:
    """A job to replay: work (nu x microseconds) from a start until it is done or the limit is reached.

    Without a budget, spending is not counted. A gang needs `nodes` machines to work, and uses up to `most_nodes`, if
    that is more; 0 nodes are no gang. With `scaling` s, n machines do n^(1 + s) times the work of one; an offer's `nu`
    is the work of a machine among all that may be rented. `saved_gb` is the size of a checkpoint that moves with the
    job.
    """

    start: int
    work: float
    limit: int
    offers: tuple[Offer, ...]
    baseline: Rent
    most_nu: float
    budget: ReplayedBudget | None = None
    nodes: int = 0
    scaling: float = 0.0
    saved_gb: float | None = None
    most_nodes: int = 0
    enough: Callable[[int, Sequence[Tenure], Iterable[Tenure]], bool] | None = None

    def rate(self, working: Sequence[Holding]) -> float:
        """Work per hour of machines that have started up; a gang uses as many as it has nodes, the fastest ones."""
        if self.nodes:
            each = sorted(
                (holding.rent.offer.nu for holding in working for _ in range(holding.rent.machines)), reverse=True
            )
            return sum(each[: max(self.nodes, self.most_nodes)]) if gang_works(working, self.nodes) else 0.0
        nu = sum(holding.nu for holding in working)
        return nu * (nu / self.most_nu) ** self.scaling if self.scaling and nu else nu


@dataclass(frozen=True, slots=True)
class Run:
    """A replayed job. `end` is None if it was not finished by its limit."""

    job: ReplayedJob
    end: int | None
    tenures: tuple[Tenure, ...]

    @property
    def evictions(self) -> int:
        """Number of evictions; machines of one allocation that are evicted together count once."""
        return sum(tenure.ended is End.EVICTED for tenure in self.tenures)
