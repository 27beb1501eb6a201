"""`Gang`: a few lines in a DDP or FSDP2 loop, and an eviction costs less than a restart from a
checkpoint.

    gang = Gang(model, optimizer, every=50)
    for step in range(gang.restore(), STEPS):
        train(step)
        gang.step(step + 1)

Every `every` steps, each rank's part of the state (PyTorch's distributed checkpoint, written in the
background) goes to this machine and to `copies` others of the gang. On an eviction notice all ranks
save at once, and those of the machine that leaves exit. The others are started again by `python -m
spotctl.integrations.gang`, and read from their peers.
"""

import io
import os
import secrets
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import async_save
except ImportError:
    raise ImportError(
        "spotctl.integrations.torch needs PyTorch: pip install 'spotctl[torch]'"
    ) from None

from agileml.transport import parse_host_port
from spotctl.agent.checkpoints.local import CheckpointPlanReader
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.agent.lease.lease_files import LeaseHolder
from spotctl.integrations.gang_saves import METADATA, GangSettings, Peers, SaveName, Saves, files_of

PATIENCE = timedelta(minutes=5)
"""The time for all ranks to reach a step; then a peer that vanished without closing its connections
counts as lost."""

CHECKPOINT_SECONDS = 600.0
"""The time between checkpoints at the job's place, unless spotctl sets another."""


class _ModelAndOptimizer:
    """Model and optimizer as one state, whether they are plain, DDP or FSDP."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


class _PlainReader(FileSystemReader):
    """Reads saves of other machines. PyTorch unpickles a save's metadata: what is more than
    metadata is refused.
    """

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        files_of(Path(self.path, METADATA))
        # Without a rank: PyTorch would then look for metadata under another name.
        return super().read_metadata()


class _PlainPlanner(DefaultLoadPlanner):
    """Loads saves of other machines. PyTorch unpickles all that is no tensor: this does so only for
    plain values.
    """

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        plain = io.BytesIO()
        torch.save(torch.load(value, weights_only=True), plain)
        plain.seek(0)
        super().load_bytes(read_item, plain)


class Gang:
    """Saves and restores a training of `torch.distributed`, whose default group exists already.

    `extra` are more objects with state_dict and load_state_dict, such as a scheduler, the same on
    all ranks. Their states are tensors and plain values, or of classes that
    `torch.serialization.add_safe_globals` allows: nothing else is loaded from a save, because
    another machine may have written it. The ranks agree on notices every `look_every` steps.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        every: int = 50,
        copies: int = 2,
        look_every: int = 1,
        extra: Mapping[str, Any] | None = None,
        timeout: timedelta = PATIENCE,
    ) -> None:
        self._state = {"training": _ModelAndOptimizer(model, optimizer), **(extra or {})}
        self._every, self._look_every = every, look_every
        self._rank, self._leads = dist.get_rank(), int(os.environ.get("LOCAL_RANK", "0")) == 0

        # Saves run in the background, next to the training's own messages, so there are two more
        # groups.
        self._control = dist.new_group(timeout=timeout, backend="gloo")
        self._background = dist.new_group(timeout=timeout, backend="gloo")
        settings = GangSettings.of(os.environ)
        addresses = [parse_host_port(address) for address in settings.peers]
        self._folder = settings.folder
        self._peers = Peers(addresses, settings.machine, settings.secret, self._folder / "store")
        self._saves = Saves(self._peers, copies, settings.checkpoints)

        # The checkpoint folder of the first machine is the job's; torchrun may give rank 0 to
        # another machine. All ranks take part, also those that keep nothing: a collective that some
        # leave out hangs.
        first = torch.tensor(settings.machine)
        dist.all_reduce(first, dist.ReduceOp.MIN, group=self._control)
        self._keeps = self._leads and settings.machine == int(first)
        self._holder, self._must_end = LeaseHolder.of(), False
        self._plan = CheckpointPlanReader.of()
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self._stored: SaveName | None = None
        self._token = str(self._from_first_rank(secrets.token_hex(4)))
        self._checkpointed_at = time.monotonic()
        signal.signal(signal.SIGTERM, self._on_term)
        sys.excepthook = _fail

    def restore(self) -> int:
        """Loads the newest complete save, from peers or the checkpoint; returns its step, 0 if
        there is none.
        """
        newest = str(
            self._from_first_rank(str(self._saves.newest() or "") if self._rank == 0 else "")
        )
        if not newest:
            return 0

        name, folder = SaveName.parse(newest), self._folder / "restored"
        assert name is not None
        if self._leads:
            self._saves.gather(name, folder)
        dist.barrier(self._control)
        reader, planner = _PlainReader(folder), _PlainPlanner()
        load(self._state, storage_reader=reader, planner=planner, process_group=self._control)
        dist.barrier(self._control)
        if self._leads:
            shutil.rmtree(folder)

        return name.step

    def step(self, done: int) -> None:
        """Must be called after each step with the number of steps done. Ends the process if its
        machine leaves.
        """
        due = done % self._every == 0
        if not due and done % self._look_every:
            return

        # Why this machine leaves; empty if it stays.
        why = "told to end" if self._must_end else ""
        notice = None if self._holder is None else self._holder.notice()
        if notice is not None and notice.kind != "hint":
            why = f"{notice.kind} announced by {notice.source}"
        busy = self._pending is not None and not self._pending.done()
        flags = torch.tensor([bool(why), busy], dtype=torch.uint8)
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._control)
        noticed, some_busy = map(bool, flags.tolist())

        if noticed:
            if self._pending is not None:
                self._pending.result()
            self._begin(done)
            assert self._pending is not None
            self._pending.result()
            # Every rank's part is with its peers; the whole save goes to the checkpoint folder.
            dist.barrier(self._control)
            assert self._stored is not None
            if self._keeps:
                self._saves.checkpoint(self._stored)
            dist.barrier(self._control)
            if why:
                sys.stderr.write(f"spotctl: saved at step {done}: {why}\n")
                _end(SAVED_AND_ENDED)
        elif due and not some_busy:
            self._begin(done)

    def close(self) -> None:
        """Waits for the last save."""
        if self._pending is not None:
            self._pending.result()
        self._thread.shutdown()
        self._peers.close()

    def _on_term(self, *_: object) -> None:
        # Sent by the machine's agent, or by torchrun, which restarts the ranks when machines come
        # and go.
        self._must_end = True

    def _begin(self, done: int) -> None:
        """Copies the state, and stores it in the background."""
        name = SaveName(done, self._token)
        folder = self._folder / f"rank-{self._rank}"
        shutil.rmtree(folder, ignore_errors=True)
        writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=False)
        saving = async_save(self._state, storage_writer=writer, process_group=self._background)
        self._pending = self._thread.submit(self._store, saving, name, folder)

    def _store(self, saving: Any, name: SaveName, folder: Path) -> None:
        saving.result()
        # Now all ranks have begun this save, so all have stored the previous one.
        before, self._stored = self._stored, None
        self._saves.store(name, folder)
        if before is not None:
            if self._leads:
                self._saves.drop_before(before)
            planned = None if self._plan is None else self._plan.every()
            every = CHECKPOINT_SECONDS if planned is None else planned
            if self._keeps and time.monotonic() - self._checkpointed_at >= every:
                self._saves.checkpoint(before)
                self._checkpointed_at = time.monotonic()

        self._stored = name

    def _from_first_rank(self, value: object) -> object:
        """The value that rank 0 passes."""
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._control)
        return values[0]


def _fail(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> NoReturn:
    """Ends a rank that fails, mostly because a peer is gone, at once: torchrun then starts the
    others again.
    """
    traceback.print_exception(kind, error, at)
    _end(1)


def _end(code: int) -> NoReturn:
    """Exits without waiting for threads, which wait for messages of peers that may be gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
