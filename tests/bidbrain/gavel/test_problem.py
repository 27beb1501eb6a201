"""Problems that a policy cannot solve."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.gavel.fairness import makespan_policy
from bidbrain.gavel.problem import BadProblem
from tests.bidbrain.gavel.problems import problem


def test_unknown_steps_are_refused() -> None:
    with pytest.raises(BadProblem, match="job 'j1': steps: missing: makespan"):
        makespan_policy(problem([[1], [1]], [1], steps=[1, np.inf]))
