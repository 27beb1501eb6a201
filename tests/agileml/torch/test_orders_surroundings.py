"""Changes that a step makes around itself."""

from __future__ import annotations

import torch
from torch import nn

from agileml.torch.orders import Unchanged


def test_a_change_that_begins_later_is_noticed() -> None:
    frozen = nn.Linear(2, 2)
    kept = Unchanged(frozen, dict(frozen.named_parameters()))
    for step in range(1, 20):
        kept.begin()
        if step > 4:
            frozen.bias.data += 1
        if kept.changed(dict(frozen.named_parameters())):
            break
    assert step == 8
    counted = Unchanged(frozen, dict(frozen.named_parameters()))
    for step in range(1, 20):
        counted.begin()
        with torch.no_grad():
            frozen.bias.add_(0.0 if step < 10 else 1.0)
        if counted.changed(dict(frozen.named_parameters())):
            break
    assert step == 10
