"""What a loader's state holds."""

from __future__ import annotations

import io

import pytest
import torch
from torch.utils.data import TensorDataset

from spotctl.integrations.torch_state import ResumableLoader


def loader() -> ResumableLoader:
    return ResumableLoader(TensorDataset(torch.arange(12)), batch_size=3, shuffle=True)


@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_a_loader_resumes_with_the_batches_and_the_noise_that_would_have_followed(
    stop: int,
) -> None:
    def seen(begun: ResumableLoader, epochs: int) -> list[list[float]]:
        return [
            [*batch.tolist(), torch.rand(()).item()] for _ in range(epochs) for (batch,) in begun
        ]

    torch.manual_seed(5)
    straight = seen(loader(), 2)
    torch.manual_seed(5)
    first, stored = loader(), io.BytesIO()
    batches = [batch for _ in range(stop // 4) for batch in seen(first, 1)]
    if stop % 4:
        for (batch,) in first:
            batches.append([*batch.tolist(), torch.rand(()).item()])
            if len(batches) == stop:
                break
    torch.save(first.state_dict(), stored)
    stored.seek(0)
    torch.manual_seed(99)
    second = loader()
    second.load_state_dict(torch.load(stored, weights_only=True))
    batches += seen(second, 2 - stop // 4)
    assert batches == straight
