"""Messages about a partition that a node sends in the name of another."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.core.events import Implausible
from agileml.params.layout import Layout
from agileml.protocol.messages import Collected, Tally, Version
from agileml.runtime.rights import Bounds

pytestmark = pytest.mark.timeout(600)


def test_a_part_of_another_model_is_not_taken() -> None:
    layout = Layout.cut({"w": np.zeros((8, 3), np.float32)}, 2)
    bounds = Bounds(2, 4, layout)
    right = [np.zeros((segment.rows, 3), np.float32) for segment in layout.partitions[0]]
    bounds.check(Collected("n", 1, 0, Version(3, Tally(1, 1), right)))
    for wrong in ([], [np.zeros((9, 3), np.float32)], [np.zeros(3, np.float32)]):
        with pytest.raises(Implausible, match="arrays"):
            bounds.check(Collected("n", 1, 0, Version(3, Tally(1, 1), wrong)))
