"""Offers of rows of `sinfo`. The first two rows are those of 22.05.8 on a cluster of ours; rows with
GPUs and features have the forms of sinfo(1) and slurm.conf(5)."""

from __future__ import annotations

from spotctl.clouds.slurm.cloud import SlurmSettings
from spotctl.clouds.slurm.partitions import COLUMNS, NodeOffer, offers_of

KNOWN = {"ClusterName": "try", "PreemptType": "preempt/partition_prio"}
ROWS = """
spot  up REQUEUE 1  infinite 2 2000 (null) (null)
owner up OFF     10 2:00:00  2 2000 (null) (null)
gpu   up CANCEL  1  1-00:00:00 64 515000+ gpu:a100:4(S:0-1),nvme:1 ib,avx512
plain up SUSPEND 1  30:00 8 16000 gpu:2 (null)
lab   inact OFF  1  infinite 2 2000 (null) (null)
"""


def offered(settings: SlurmSettings | None = None, **known: str) -> dict[str, NodeOffer]:
    lines = (line.split() for line in ROWS.strip().splitlines())
    rows = [dict(zip(COLUMNS, cells, strict=True)) for cells in lines]
    made = offers_of(rows, KNOWN | known, settings or SlurmSettings())
    return {f"{one.market.zone}/{one.market.instance_type}": one for one in made}


def test_partitions_that_owners_preempt_are_spot() -> None:
    spot = {one.market.zone for one in offered().values() if one.is_preemptible}
    assert spot == {"spot", "gpu", "plain"}
    assert not any(one.is_preemptible for one in offered(PreemptType="preempt/none").values())


def test_nodes_are_machines_and_those_with_gpus_are_sold_in_parts() -> None:
    assert list(offered()) == [
        "spot/2c-2g",
        "owner/2c-2g",
        "gpu/64c-503g-4xa100+ib+avx512",
        "gpu/16c-126g-1xa100+ib+avx512",
        "gpu/32c-251g-2xa100+ib+avx512",
        "plain/8c-16g-2xgpu",
        "plain/4c-8g-1xgpu",
    ]
    part = offered()["gpu/16c-126g-1xa100+ib+avx512"]
    assert (part.gpu, part.gpus, part.features) == ("a100", 1, ("ib", "avx512"))
    assert (part.hardware.accelerator, part.hardware.vcpus) == ("A100", 16)
    assert (part.is_whole, part.minutes, part.price) == (False, 1440, 250_000_000)
    assert str(part.market) == "slurm/slurm-try/gpu/16c-126g-1xa100+ib+avx512"
    assert offered()["plain/8c-16g-2xgpu"].hardware.accelerator == "GPU"


def test_only_the_partitions_of_the_settings_at_their_prices() -> None:
    settings = SlurmSettings(partitions=("spot", "owner"), usd_per_hour={"owner": 0.5, "*": 0.25})
    prices = {name: one.price for name, one in offered(settings).items()}
    assert prices == {"spot/2c-2g": 250_000_000, "owner/2c-2g": 500_000_000}
