"""Networks of PyTorch with what real ones have, and data for them."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

SAMPLES, WIDTH, CLASSES = 4, 8, 5


def points(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(SAMPLES, WIDTH, generator=draw), torch.randint(
        CLASSES, (SAMPLES,), generator=draw
    )


def images(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(SAMPLES, 3, 6, 6, generator=draw), torch.randint(
        CLASSES, (SAMPLES,), generator=draw
    )


def tokens(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    text = torch.randint(CLASSES, (SAMPLES, 7), generator=draw)
    return text[:, :-1], text[:, 1:]


def pairs(number: int) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    inputs, targets = points(number)
    return (inputs, points(number + 1000)[0]), targets


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tanh(self.a(left)), self.b(right) + left


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = self.out(torch.cat([left, right], dim=-1))
        return joined


class Skipping(nn.Module):
    """Keeps its input for a layer of a later stage."""

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return inputs * 2, inputs


class Within(nn.Module):
    """Works on the first of two values and passes the other on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, values: torch.Tensor, skipped: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(self.inner(values)), skipped


class Masked(nn.Module):
    """Passes integers on, next to what it makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, WIDTH)

    def forward(self, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.embedding(text), text


class Unmasked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, values: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        chosen: torch.Tensor = self.out(values * (text > 0).unsqueeze(-1))
        return chosen


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.used(inputs)
        return outputs


class Adds(nn.Module):
    """Changes its input in place without saying so."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs += 1
        return inputs


class Unembedding(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.weight

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values @ self.weight.t()


class Staged(nn.Module):
    """A model that is no Sequential and has a list of stages."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            [nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)]
        )


class Lowered(nn.Module):
    """A linear layer under autocast: weights in float32, products and outputs in bfloat16."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inner = nn.Linear(inputs, outputs)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs: torch.Tensor = self.inner(values)
        return outputs


class Cast(nn.Module):
    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.kind)


class OneGradient(nn.Module):
    """Two weights that always have the same gradient, and one that has none."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.aside = (nn.Parameter(torch.zeros(2)) for _ in range(3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + (self.left + self.right)


def frozen() -> nn.Sequential:
    whole = plain()
    for parameter in whole[0].parameters():
        parameter.requires_grad_(False)
    whole[2].weight.requires_grad_(False)
    return whole


def plain() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, CLASSES),
    )


def tied(*, between: int) -> nn.Sequential:
    embedding = nn.Embedding(CLASSES, WIDTH)
    inner = [nn.Linear(WIDTH, WIDTH) for _ in range(between)]
    return nn.Sequential(embedding, *inner, Unembedding(embedding))


def tied_thrice() -> nn.Sequential:
    whole = plain()
    shared = nn.Linear(WIDTH, WIDTH)
    return nn.Sequential(whole[0], shared, nn.Tanh(), shared, nn.ReLU(), shared, whole[4])


def groups(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """No decay for biases and norms."""
    wide, narrow = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]
    parts = [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}]
    return torch.optim.AdamW([part for part in parts if part["params"]], lr=0.01)


def warmed_up(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
        ],
        [2],
    )


def per_token(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), label_smoothing=0.1
    )


LAST = partial(nn.Linear, WIDTH, CLASSES)


def in_place() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), Adds(), nn.ReLU(inplace=True), nn.Tanh(), LAST())


def dropping() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3), nn.Tanh(), nn.Dropout(0.3), LAST()
    )


def normalized() -> nn.Sequential:
    first = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(64, WIDTH), nn.BatchNorm1d(WIDTH), LAST())


def halved() -> nn.Sequential:
    return nn.Sequential(Cast(torch.bfloat16), *plain().to(torch.bfloat16), Cast(torch.float32))


def lowered() -> nn.Sequential:
    return nn.Sequential(
        Lowered(WIDTH, WIDTH), nn.ReLU(), Lowered(WIDTH, WIDTH), nn.Tanh(), Lowered(WIDTH, CLASSES)
    )
