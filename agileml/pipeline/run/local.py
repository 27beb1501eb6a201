"""An elastic pipeline on this computer: nodes are processes, which may really be killed."""

import logging
import os
import pickle
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import cloudpickle

from agileml.errors import JobFailed
from agileml.pipeline.elastic.controller import ElasticController, ElasticPhase
from agileml.pipeline.elastic.messages import (
    CONTROLLER,
    AreYouThere,
    LayerSaved,
    NodeGone,
    NodeJoined,
    NodeReport,
    NodeWarned,
    PipelineEvent,
    TakeSeat,
)
from agileml.pipeline.model.base import Weights
from agileml.pipeline.run.checkpoint_file import load_checkpoint, save_checkpoint
from agileml.pipeline.run.copies import Copies, copies_for, final_weights, store_copy
from agileml.pipeline.run.hung_nodes import HungNodes, processor_seconds
from agileml.pipeline.run.node import PipelineFrame, PipelineTask
from agileml.pipeline.run.wire import message_in, post
from agileml.pipeline.run.worker import WorkerBoot, socket_of
from agileml.runtime.own_folder import short_folder
from agileml.transport import Connected, Endpoint, Identity, Lost, Received
from agileml.transport.settings import PATIENT

_BOOT = """\
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from agileml.pipeline.run.worker import main
main()
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""More threads would compete with the other stages for processors, and add in another order."""
_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""For glibc: the next arrays are as large as the last ones, and the system clears memory that was freed."""
NODE_ENVIRONMENT = {**_ONE_THREAD, **_KEPT_MEMORY}
_POLL_SECONDS = 0.5
HANG_SECONDS = 30.0
"""A node that neither answers nor computes for this long is replaced."""

log = logging.getLogger(__name__)

AfterBatch = Callable[["LocalPipeline"], None]


class LocalPipeline:
    """For a `with` block, at the end of which no process and no socket is left."""

    def __init__(
        self,
        task: PipelineTask,
        controller: ElasticController,
        checkpoint: Path | None = None,
        hang_timeout: float = HANG_SECONDS,
    ) -> None:
        """With a checkpoint file the run survives its own process: a new process goes on from the file."""
        self.controller = controller
        self.copies: Copies = {}
        self._checkpoint = checkpoint
        if checkpoint and checkpoint.exists():
            load_checkpoint(checkpoint, controller, self.copies)
        self._task = cloudpickle.dumps(task)
        self._folder = short_folder("agileml-pipeline-")
        self._secret = secrets.token_bytes(32)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._warned: set[str] = set()
        self._saved = controller.backup
        self._watch = HungNodes(hang_timeout, time.monotonic(), processor_seconds)
        self.hung: list[str] = []
        """Nodes that were replaced because they hung."""
        self._endpoint = Endpoint(Identity(CONTROLLER), self._secret, PATIENT)
        self._endpoint.listen(socket_of(self._folder, CONTROLLER))

    def __enter__(self) -> "LocalPipeline":
        return self

    def __exit__(self, *_: object) -> None:
        self._endpoint.close()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def nodes(self) -> Sequence[str]:
        return [name for name, process in self._processes.items() if process.poll() is None]

    @property
    def processes(self) -> Mapping[str, int]:
        return {name: self._processes[name].pid for name in self.nodes}

    def join(self, name: str) -> None:
        """Starts a node, which takes part as soon as a batch is finished."""
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT],
            stdin=subprocess.PIPE,
            env={**os.environ, **NODE_ENVIRONMENT},
        )
        self._processes[name] = process
        assert process.stdin is not None
        with process.stdin as pipe:
            pickle.dump(sys.path, pipe)
            pickle.dump(WorkerBoot(name, self._folder, self._secret, self._task, os.getpid()), pipe)

    def warn(self, name: str) -> None:
        """Warns a node, which finishes its batch and hands its layers on."""
        self._warned.add(name)
        self._handle(NodeWarned(name))

    def kill(self, name: str) -> None:
        """Kills a node with SIGKILL, as an eviction without warning."""
        self._processes[name].kill()

    def run(self, after_batch: AfterBatch | None = None) -> dict[int, Weights]:
        """Trains to the end; returns the weights of all layers."""
        seen = self.controller.batch
        while not self.controller.finished:
            for event in self._endpoint.poll(_POLL_SECONDS):
                match event:
                    case Connected(peer, _):
                        self._handle(NodeJoined(peer))
                    case Lost(peer, _):
                        self._handle(NodeGone(peer))
                    case Received():
                        self._take(event)
            self._save()
            if self.controller.batch != seen:
                seen = self.controller.batch
                if after_batch and seen < self.controller.limit:
                    after_batch(self)
            self._replace_hung()
            self._check()
        self._endpoint.flush(5.0)
        return final_weights(self.copies, self.controller.settings.batches)

    def _replace_hung(self) -> None:
        now = time.monotonic()
        if self._watch.asks(now):
            for node in self._endpoint.peers:
                post(self._endpoint, node, AreYouThere())
        linked = {name: process for name, process in self.processes.items() if name in self._endpoint.peers}
        for node in self._watch.look(now, linked):
            self.hung.append(node)
            successor = f"{node}.{len(self.hung)}"
            log.warning("%s hangs: no sign of life for %g s; %s takes its place", node, self._watch.seconds, successor)
            self.kill(node)
            self._processes[node].wait()
            self.join(successor)

    def _take(self, event: Received) -> None:
        self._watch.heard(event.peer)
        message = message_in(event)
        if isinstance(message, PipelineFrame):
            store_copy(self.copies, message, self.controller.backup)
            _, layer, batch = message.key
            self._handle(LayerSaved(event.peer, message.epoch, batch, layer))
        elif isinstance(message, NodeReport):
            self._handle(message)

    def _handle(self, event: PipelineEvent) -> None:
        for node, instruction in self.controller.handle(event, time.monotonic()):
            if node not in self._endpoint.peers:
                continue
            post(self._endpoint, node, instruction)
            if isinstance(instruction, TakeSeat):
                for frame in copies_for(instruction, self.copies):
                    post(self._endpoint, node, frame)

    def _save(self) -> None:
        if self._checkpoint and self.controller.backup > self._saved:
            self._saved = self.controller.backup
            save_checkpoint(self._checkpoint, self.controller, self.copies)

    def _check(self) -> None:
        """Nodes join after a batch only: too few nodes for a batch would wait forever."""
        staying, needed = set(self.nodes) - self._warned, min(self.controller.settings.layouts)
        if self.controller.phase is not ElasticPhase.WAITING or len(staying) >= needed:
            return
        ended = {name: process.returncode for name, process in self._processes.items() if name not in self.nodes}
        statuses = ", ".join(f"{name}: {code}" for name, code in ended.items()) or "none"
        again = "; start it again with the same checkpoint" if self._checkpoint else ""
        raise JobFailed(
            f"{len(staying)} nodes are left in update {self.controller.batch}, and the model needs at least {needed}"
            f" (exit status of the others: {statuses}){again}"
        )
