"""`SpotCallback` for Hugging Face's `Trainer`: saves before an eviction, and the next start resumes
there.

spot = SpotCallback()
trainer = Trainer(model, args, train_dataset=data, callbacks=[spot])
trainer.train(resume_from_checkpoint=spot.newest())
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError(
        f"spotctl.integrations.transformers needs Transformers: pip install "
        f"'spotctl[transformers]' ({error})"
    ) from error

from spotctl.agent.checkpoints.local import TrainingPosition
from spotctl.agent.lease.job_lease import JobLease
from spotctl.agent.lease.lease_files import LeaseAct, LeaseDecision
from spotctl.integrations.loops import PublishedCheckpoints, least, link_tree

_GO = LeaseDecision(LeaseAct.GO)


class SpotCallback(TrainerCallback):  # type: ignore[misc]
    """Saves when spotctl asks for a save, and at the interval that spotctl derives from evictions.

    Every checkpoint, also of the Trainer's own `save_strategy`, is copied to `folder`
    (`$SPOTCTL_CHECKPOINT_DIR`), where the newest and the best stay. When the machine is about to
    end, `train` raises `LeaseEnded` after a save.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._published, self._lease = PublishedCheckpoints(folder), JobLease()
        self._decision, self._act, self._began = _GO, LeaseAct.GO, 0.0

    def newest(self) -> str | None:
        """The value for `resume_from_checkpoint`: the newest checkpoint, or None at the very first
        start.
        """
        return next((str(path) for path in reversed(self._published.all())), None)

    def on_init_end(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        if int(os.environ.get("SPOTCTL_NODES", "1")) > 1 and not args.save_on_each_node:
            raise ValueError(
                "a job of several nodes needs TrainingArguments(save_on_each_node=True)"
            )
        if args.local_process_index == 0:
            for path in self._published.all():
                link_tree(path, Path(args.output_dir, path.name))

    def on_train_begin(
        self, _: TrainingArguments, state: TrainerState, *__: Any, **___: Any
    ) -> None:
        self._lease.report_start(_position(state))
        self._lease.start_step()

    def on_step_end(
        self, _: TrainingArguments, state: TrainerState, control: TrainerControl, **__: Any
    ) -> TrainerControl:
        self._lease.count_step()
        # After the last step of an epoch the Trainer may evaluate: only a save after the evaluation
        # resumes after it.
        return control if float(state.epoch or 0).is_integer() else self._attend(state, control)

    def on_epoch_end(
        self, _: TrainingArguments, state: TrainerState, control: TrainerControl, **__: Any
    ) -> TrainerControl:
        return self._attend(state, control)

    def _attend(self, state: TrainerState, control: TrainerControl) -> TrainerControl:
        self._decision, self._began = self._lease.decision(), time.monotonic()
        self._act = LeaseAct(least(self._decision.act.value))
        if self._act is LeaseAct.GO:
            self._lease.report_progress(self._decision, _position(state), saved=False)
        else:
            control.should_save = True
        return control

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Counts the time of an evaluation neither as part of a save nor of a step."""
        self._began = time.monotonic()
        self._lease.start_step()

    def on_save(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        least(0)  # all ranks have written their files
        if args.local_process_index == 0:
            name, best = f"checkpoint-{state.global_step}", state.best_model_checkpoint
            link_tree(Path(args.output_dir, name), self._published.hidden(name))
            self._published.publish(name, keep=(Path(best).name,) if best else ())

        least(0)  # a process that ends may take the others with it
        self._lease.note_save(state.global_step, self._began)
        decision, act = self._decision, self._act
        self._decision, self._act = _GO, LeaseAct.GO
        if act is LeaseAct.END:
            raise self._lease.report_end(decision, _position(state))

        self._lease.report_progress(decision, _position(state), saved=True)
        self._lease.start_step()

    def on_train_end(self, _: TrainingArguments, state: TrainerState, *__: Any, **___: Any) -> None:
        self._lease.report_finish(_position(state))


def _position(state: TrainerState) -> TrainingPosition:
    return TrainingPosition(int(state.epoch or 0), 0, state.global_step)
