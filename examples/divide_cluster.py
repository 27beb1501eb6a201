"""Divides a cluster between two jobs: each of Gavel's `POLICIES` gives the share of time of each
job on each type.
"""

import numpy as np

from bidbrain.gavel.policies import POLICIES
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterJobs

cluster = Cluster(types=("v100", "k80"), workers=np.array([1.0, 1.0]))
jobs = ClusterJobs(
    ids=("resnet", "lstm"),
    throughputs=np.array([[40.0, 10.0], [12.0, 6.0]]),  # steps per second of each job on each type
    scale=np.ones(2, np.int64),
    weight=np.ones(2),
    steps=np.full(2, 1e6),
    elapsed_seconds=np.zeros(2),
    slo_seconds=np.full(2, np.inf),
    arrival=np.arange(2.0),
    entity=(None, None),
)
allocation = POLICIES["max-min-fairness"](AllocationProblem(cluster, jobs))
assert allocation.shares.shape == (2, 2)
assert (allocation.shares.sum(axis=1) <= 1 + 1e-6).all()
print(allocation.shares.round(3))
