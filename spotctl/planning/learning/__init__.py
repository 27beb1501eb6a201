"""Estimates for a job from its earlier runs: machine throughput, and the time lost when machines change.

`observe` measures one run from its events and ledger rows. `estimate` combines many runs with prior assumptions, whose
weight shrinks with the data. `read` finds the runs.
"""

from spotctl.planning.learning.estimate import learn
from spotctl.planning.learning.observe import Observed, observed
from spotctl.planning.learning.values import Learned, Spell, Throughput

__all__ = ["Learned", "Observed", "Spell", "Throughput", "learn", "observed"]
