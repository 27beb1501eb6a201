"""What earlier runs of a job teach about the next one: how fast machines work on it, and what changes of machines cost.

`observe` takes from a run's events and rows of the ledger what can be measured, `estimate` makes figures of many runs,
which lean on what was assumed as long as there is little to see. `reading` finds the runs.
"""

from spotctl.planning.learning.estimate import learn
from spotctl.planning.learning.observe import Observed, observed
from spotctl.planning.learning.values import Learnt, Spell, Throughput

__all__ = ["Learnt", "Observed", "Spell", "Throughput", "learn", "observed"]
