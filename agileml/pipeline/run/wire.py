"""Messages of an elastic pipeline as frames of the transport."""

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from agileml.errors import BrokenConnection
from agileml.pipeline.elastic.messages import AreYouThere, NodeInstruction, NodeReport, StillThere
from agileml.pipeline.run.node import PipelineFrame
from agileml.transport import Endpoint, Received

Control = NodeInstruction | NodeReport | AreYouThere | StillThere
WireMessage = Control | PipelineFrame
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Control)}
_FRAME = "frame"
_FrameHead = tuple[int, tuple[str, int, int], tuple[int, ...], tuple[int, int]]


def post(endpoint: Endpoint, peer: str, message: WireMessage) -> None:
    """Queues a message for a peer with an open link."""
    if isinstance(message, PipelineFrame):
        head: _FrameHead = (message.epoch, message.key, message.versions, message.counts)
        endpoint.send(peer, _FRAME, msgspec.msgpack.encode(head), message.arrays)
    else:
        endpoint.send(peer, type(message).__name__, msgspec.msgpack.encode(message))


def message_in(received: Received) -> WireMessage:
    """The message in a received frame. Raises BrokenConnection if there is none."""
    try:
        if received.kind == _FRAME:
            epoch, key, versions, counts = msgspec.msgpack.decode(received.header, type=_FrameHead)
            return PipelineFrame(epoch, key, tuple(received.arrays), versions, counts)
        decode: Callable[..., Control] = msgspec.msgpack.decode
        return decode(received.header, type=_KINDS[received.kind])
    except (msgspec.MsgspecError, KeyError) as error:
        raise BrokenConnection(f"{received.peer} sent {received.kind!r}, which no pipeline understands") from error
