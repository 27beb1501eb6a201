"""The training of a `TorchModule` in a loop of one process: whole batches, and the optimizer's own
steps.

    for step, (module, batch) in enumerate(plain_training(trainer)):
        ...  # the module before this step, and the batch that it takes

Curves of such a loop can be drawn over those of a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import torch

from agileml.errors import BadArgument
from agileml.torch.network import TorchNetwork, on_device
from agileml.torch.orders import surroundings
from agileml.torch.trainer import MAX_SEEDS, TorchModule
from agileml.trainer import init_rng, random_generator, sample_of


def plain_training(trainer: TorchModule, seed: int = 0) -> Iterator[tuple[torch.nn.Module, object]]:
    """The module before each step with the batch of the step, without end. Only dropout draws other
    random numbers.

    The first weights and all batches are those of a job with this seed.
    """
    drawn = int(init_rng(seed).integers(MAX_SEEDS))
    device = check_plain(trainer)._device
    module = trainer.build(drawn).to(device)
    optimizers = trainer.build_optimizers(module)
    schedules = (
        [trainer.schedule(optimizer) for optimizer in optimizers] if trainer.schedule else []
    )
    trained = [
        each
        for optimizer in optimizers
        for group in optimizer.param_groups
        for each in group["params"]
    ]

    for clock, batch in enumerate(trainer.batches(seed), 1):
        yield module, batch
        module.train()
        module.zero_grad()
        with surroundings(
            int(random_generator(drawn, (5, clock)).integers(2**62)), trainer.threads
        ):
            loss = trainer.objective_at(clock)(module, on_device(batch, device))
            torch.autograd.backward(loss * trainer.loss_scale)
            for parameter in trained:
                if parameter.grad is not None:
                    parameter.grad /= trainer.loss_scale
            if trainer.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(trained, trainer.clip_norm)
            for optimizer in optimizers:
                optimizer.step()
            for schedule in schedules:
                schedule.step()


def plain_losses(
    trainer: TorchModule, clocks: Sequence[int], seed: int, sample_items: int
) -> Iterator[float]:
    """The losses of `plain_training` after these numbers of clocks, ascending, over the sample of a
    job.
    """
    training = plain_training(trainer, seed)
    drawn = int(init_rng(seed).integers(MAX_SEEDS))
    sample = sample_of(trainer.shards(), sample_items)
    before = -1

    for clock in clocks:
        module, _ = next(islice(training, clock - before - 1, None))
        before = clock
        network = TorchNetwork(module, frozenset(), trainer._device)
        yield trainer.mean_loss(network, drawn, clock, [piece for piece in sample if len(piece)])


def check_plain(trainer: object) -> TorchModule:
    """The trainer, if plain PyTorch can train the same; BadArgument otherwise."""
    if type(trainer) is TorchModule:
        return trainer
    raise BadArgument(
        f"{type(trainer).__name__} is no TorchModule, so plain PyTorch cannot train the same; "
        "compare its losses with those of its own loop"
    )
