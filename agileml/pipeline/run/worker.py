"""The process of one pipeline node: the state machine of `node`, behind an endpoint."""

import os
import pickle
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from agileml.pipeline.elastic.messages import (
    CONTROLLER,
    AreYouThere,
    CopyLayers,
    FramesLost,
    LeavePipeline,
    NodeFailed,
    NodeReport,
    RunBatches,
    StillThere,
    TakeSeat,
)
from agileml.pipeline.run.node import PipelineFrame, PipelineNode, PipelineTask
from agileml.pipeline.run.wire import WireMessage, message_in, post
from agileml.transport import Connected, Endpoint, Identity, Lost, Received, Rejected, UnixAddress
from agileml.transport.settings import PATIENT
from agileml.user_code import described

_LOOKS, _LOOK_SECONDS = 20, 0.1
_RELINK_SECONDS = 0.2
"""From the end of a link, or a failed attempt, to the next attempt."""


@dataclass(frozen=True)
class WorkerBoot:
    """The input of a new process."""

    name: str
    folder: Path
    secret: bytes
    task: bytes
    """A pickled `PipelineTask`."""
    controller: int
    """The controller's process, which is the parent."""


def socket_of(folder: Path, name: str) -> UnixAddress:
    """Where a process of the job listens."""
    return UnixAddress(str(folder / f"{name}.sock"))


class PipelineWorker:
    """Connects to the controller, and to its peers as the controller names them."""

    def __init__(self, boot: WorkerBoot) -> None:
        task: PipelineTask = cloudpickle.loads(boot.task)
        self._boot = boot
        self._endpoint = Endpoint(Identity(boot.name), boot.secret, PATIENT)
        self._endpoint.listen(socket_of(boot.folder, boot.name))
        self._waiting: dict[str, deque[PipelineFrame]] = {}
        """Frames for peers whose link is not open yet."""
        self._peers: tuple[str, ...] = ()
        self._broken: set[str] = set()
        """Peers whose link broke in this epoch, on which frames may have been lost."""
        self._relink_at: float | None = None
        self._node = PipelineNode(boot.name, task, self._send, self._report, self)

    def run(self) -> None:
        """Works until the controller releases this node or is gone."""
        self._link()
        try:
            while self._handle_events():
                pass
            self._endpoint.flush(5.0)
        except Exception as error:
            self._report(NodeFailed(self._boot.name, described(error)))
            self._endpoint.flush(5.0)
            raise
        finally:
            lost = CONTROLLER not in self._endpoint.peers
            self._endpoint.close()
            if lost:
                self._clean_up()

    def _clean_up(self) -> None:
        """Removes the folder of a controller that was killed. Its links end a moment before its process."""
        for _ in range(_LOOKS):
            if os.getppid() != self._boot.controller:
                shutil.rmtree(self._boot.folder, ignore_errors=True)
                return
            time.sleep(_LOOK_SECONDS)

    def _handle_events(self) -> bool:
        wait = None if self._relink_at is None else max(self._relink_at - time.monotonic(), 0.0)
        for event in self._endpoint.poll(wait):
            match event:
                case Connected(peer, _):
                    self._open(peer)
                case Received():
                    if not self._take(message_in(event)):
                        return False
                case Rejected(peer, permanent=True) if peer == CONTROLLER:
                    return False
                case Lost(peer, _) | Rejected(peer) if peer == CONTROLLER or peer in self._peers:
                    # The peer may only be busy: on a slow computer handshakes take too long, and one side gives up.
                    if isinstance(event, Lost):
                        self._broken.add(peer)
                    self._relink_at = time.monotonic() + _RELINK_SECONDS
        if self._relink_at is not None and time.monotonic() >= self._relink_at:
            self._relink_at = None
            if os.getppid() != self._boot.controller:
                return False
            self._link()
        return True

    def _open(self, peer: str) -> None:
        if peer not in self._endpoint.peers:
            # The link broke before this event was looked at; `Lost` follows, and frames wait for the next link.
            return
        for frame in self._waiting.pop(peer, ()):
            post(self._endpoint, peer, frame)
        if peer in self._broken:
            self._broken.remove(peer)
            if peer != CONTROLLER:
                self._report(FramesLost(self._boot.name, self._node.epoch))

    def _take(self, message: WireMessage) -> bool:
        match message:
            case LeavePipeline():
                return False
            case PipelineFrame():
                self._node.receive(message)
            case TakeSeat():
                self._peers = message.peers
                # Frames that were lost before belong to an older epoch.
                self._broken.clear()
                self._waiting = {peer: frames for peer, frames in self._waiting.items() if peer in message.peers}
                self._link()
                self._node.instruct(message)
            case RunBatches() | CopyLayers():
                self._node.instruct(message)
            case AreYouThere():
                if CONTROLLER in self._endpoint.peers:
                    post(self._endpoint, CONTROLLER, StillThere())
            case _:
                pass
        return True

    def _link(self) -> None:
        """Connects to all peers without a link; of two peers, the one whose name sorts first connects."""
        for peer in (CONTROLLER, *self._peers):
            if (peer == CONTROLLER or peer > self._boot.name) and peer not in self._endpoint.peers:
                self._endpoint.connect(peer, socket_of(self._boot.folder, peer))

    def _send(self, node: str, frame: PipelineFrame) -> None:
        if node in self._endpoint.peers:
            post(self._endpoint, node, frame)
            # At once: this node may compute for long, and the other node waits for the frame.
            self._endpoint.flush(0.0)
        elif node != CONTROLLER:
            self._waiting.setdefault(node, deque()).append(frame)

    def save(self, frame: PipelineFrame, then: Callable[[], None]) -> None:  # noqa: ARG002 - the controller knows it
        """Sends a layer to the controller, which keeps it."""
        self._send(CONTROLLER, frame)

    def load(self, layer: int, batch: int) -> PipelineFrame | None:  # noqa: ARG002
        """The controller sends the layer."""
        return None

    def _report(self, report: NodeReport) -> None:
        # Without a link the controller counts this node as gone, and as a new node once there is a link again.
        if CONTROLLER in self._endpoint.peers:
            post(self._endpoint, CONTROLLER, report)


def main() -> None:
    """The entry point of a new process, which reads its `WorkerBoot` from the standard input."""
    boot = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent process
    PipelineWorker(boot).run()
