"""`SpotCallback` for Lightning's `Trainer`: saves before an eviction, and the next start resumes
there.

    spot = SpotCallback()
    trainer = Trainer(max_epochs=10, callbacks=[spot])
    trainer.fit(model, ResumableLoader(data, batch_size=32, shuffle=True), ckpt_path=spot.newest())

Lightning itself resumes an epoch at its first batch. With `ResumableLoader`, training goes on
within the epoch.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError(
        f"spotctl.integrations.lightning needs Lightning: pip install 'spotctl[lightning]' "
        f"({error})"
    ) from error

from spotctl.agent.checkpoints.local import TrainingPosition
from spotctl.agent.lease.job_lease import JobLease
from spotctl.agent.lease.lease_files import LeaseAct
from spotctl.integrations.loops import PublishedCheckpoints, least
from spotctl.integrations.torch_state import ResumableLoader

__all__ = ["ResumableLoader", "SpotCallback"]


class SpotCallback(Callback):  # type: ignore[misc]
    """Saves when spotctl asks for a save, and at the interval that spotctl derives from evictions.

    The newest checkpoint is in `folder` (`$SPOTCTL_CHECKPOINT_DIR`). When the machine is about to
    end, `fit` raises `LeaseEnded` after a save, which ends the program.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._published, self._lease = PublishedCheckpoints(folder), JobLease()
        self._step = 0

    def newest(self) -> str | None:
        """The value for `ckpt_path`: the newest checkpoint, or None at the very first start."""
        return next((str(path) for path in reversed(self._published.all())), None)

    def on_train_start(self, trainer: Trainer, _: LightningModule) -> None:
        if trainer.num_training_batches <= trainer.accumulate_grad_batches:
            raise ValueError(
                "SpotCallback needs epochs of two or more steps: repeat the data, or use smaller "
                "batches"
            )

        # Lightning would end without a save, or between batches whose gradients are accumulated.
        self._lease.listen()
        self._lease.report_start(_position(trainer))
        self._lease.start_step()
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        self._lease.count_step()
        # No checkpoint contains accumulated gradients. Lightning does not resume exactly from a
        # checkpoint of the last batch of an epoch, so such a save waits for the first step of the
        # next epoch.
        stepped, self._step = trainer.global_step > self._step, trainer.global_step
        if not stepped or trainer.is_last_batch:
            return

        decision = self._lease.decision()
        act = LeaseAct(least(decision.act.value))
        if act is not LeaseAct.GO:
            self._save(trainer)
        if act is LeaseAct.END:
            raise self._lease.report_end(decision, _position(trainer))
        self._lease.report_progress(decision, _position(trainer), saved=act is LeaseAct.SAVE)

    def on_validation_end(self, *_: Any) -> None:
        """The time of a validation is not part of a step."""
        self._lease.start_step()

    def on_train_end(self, trainer: Trainer, _: LightningModule) -> None:
        """Saves the end: a script whose results are its checkpoints has the trained network, and
        not an earlier one.
        """
        self._save(trainer)
        self._lease.report_finish(_position(trainer))

    def _save(self, trainer: Trainer) -> None:
        began, name = time.monotonic(), f"step-{trainer.global_step}.ckpt"
        if trainer.is_global_zero:
            hidden = self._published.hidden(name)
        hidden = trainer.strategy.broadcast(hidden if trainer.is_global_zero else None)
        trainer.save_checkpoint(
            hidden, weights_only=False
        )  # explicit, or Lightning warns at each save
        if trainer.is_global_zero:
            self._published.publish(name)
        least(0)  # a process that ends may take the others with it
        self._lease.note_save(trainer.global_step, began)
        self._lease.start_step()


def _position(trainer: Trainer) -> TrainingPosition:
    return TrainingPosition(trainer.current_epoch, 0, trainer.global_step)
