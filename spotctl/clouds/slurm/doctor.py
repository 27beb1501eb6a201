"""Checks of a Slurm cluster: whether it answers, what its partitions are, and whether it would take
a job of ours. Nothing is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pricing_data.errors import CloudError
from spotctl.clouds.doctor import Finding, Level, Requirement, finding_of
from spotctl.clouds.errors import Answers
from spotctl.clouds.slurm.calls import configuration
from spotctl.clouds.slurm.cloud import ACCOUNT, CLOUD_NAME, SlurmSettings
from spotctl.clouds.slurm.orders import check
from spotctl.clouds.slurm.partitions import offers
from spotctl.home.config import Settings, is_traced

SETUP = f"{ACCOUNT.setup} (docs/slurm.md)"
POLICIES: Mapping[str, Callable[[Settings], dict[str, Any]]] = {}
is_configured = partial(is_traced, account=ACCOUNT)


# A cluster's answers are not kept: two short calls, and one for each partition.
def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:  # noqa: ARG001
    """Raises `CloudError` if further checks are impossible."""
    own = settings.table(CLOUD_NAME, SlurmSettings)
    known = configuration()
    cluster = f"{known.get('ClusterName')}, Slurm {known['SLURM_VERSION']}"
    yield Finding(CLOUD_NAME, "cluster", Level.GOOD, cluster)
    on_offer = offers(own)
    if not on_offer:
        raise CloudError("slurm: no partition is up", "see sinfo -s, and partitions in [slurm]")

    spot = {offer.market.zone for offer in on_offer if offer.is_preemptible}
    if not spot:
        none = f"none: PreemptType is {known.get('PreemptType')}, so machines are not evicted"
        yield Finding(CLOUD_NAME, "preemptible", Level.NOTE, none)
    for zone in dict.fromkeys(offer.market.zone for offer in on_offer):
        here = [offer for offer in on_offer if offer.market.zone == zone]
        names = ", ".join(offer.market.instance_type for offer in here)
        yield finding_of(
            CLOUD_NAME,
            Requirement(
                f"partition {zone}{' (preemptible)' if zone in spot else ''}",
                partial(check, here[0], own, f"takes jobs: {names}"),
            ),
        )
