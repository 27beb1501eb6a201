"""Pairs of jobs that are worth sharing workers."""

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.problem import Pairs
from bidbrain.gavel.simulator.scenario import Sharing
from bidbrain.gavel.workload import Throughputs


def pair_gain(throughputs: Throughputs) -> FloatArray:
    """Combined normalized throughput of two kinds on their best type (kind, kind); zero where they cannot share."""
    alone, together = throughputs.alone, throughputs.together
    both = (together > 0).all(axis=3) & (alone[:, None] > 0) & (alone[None, :] > 0)
    divisor = np.where(alone > 0, alone, 1.0)
    gain = together[..., 0] / divisor[:, None] + together[..., 1] / divisor[None, :]
    return np.asarray(np.where(both, gain, 0.0).max(axis=2, initial=0.0))


def good_pairs(throughputs: Throughputs, kind: IntArray, sharing: Sharing) -> Pairs:
    """For each job its best partners among those with which sharing gains enough."""
    gain = pair_gain(throughputs)[np.ix_(kind, kind)]
    np.fill_diagonal(gain, 0.0)
    count = min(sharing.partners, max(len(kind) - 1, 0))
    best = np.argsort(-gain, axis=1, kind="stable")[:, :count]
    wanted = np.zeros(gain.shape, dtype=bool)
    np.put_along_axis(wanted, best, True, axis=1)
    first, second = np.nonzero(np.triu((wanted | wanted.T) & (gain > sharing.gain), k=1))
    together = throughputs.together[kind[first], kind[second]]
    return Pairs(np.column_stack([first, second]), together)
