"""What the processes do that tests start, and how they are started."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import numpy as np

from agileml.transport import (
    Connected,
    Endpoint,
    Identity,
    LinkEvent,
    Lost,
    Received,
    Rejected,
    parse_address,
)
from agileml.transport.framing import BufferPool
from tests.agileml.transport.links import SECRET

FOREVER = 60.0


@contextmanager
def running(work: Callable[..., None], *arguments: object) -> Iterator[BaseProcess]:
    """A process of its own, which is killed in the end."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def joined(name: str, address: str, secret: bytes = SECRET) -> tuple[Endpoint, list[LinkEvent]]:
    """An endpoint with a link to "a", and what it has heard already."""
    endpoint = Endpoint(Identity(name, "node", "1"), secret)
    endpoint.connect("a", parse_address(address))
    first, *events = endpoint.poll(FOREVER)
    assert isinstance(first, Connected | Rejected)
    return endpoint, events


def echo(name: str, address: str) -> None:
    """Sends back what comes, with 1 added, until the other side goes."""
    endpoint, events = joined(name, address)
    while True:
        for event in events or endpoint.poll():
            if isinstance(event, Received):
                endpoint.send("a", event.kind, event.header, [array + 1 for array in event.arrays])
            elif isinstance(event, Lost):
                endpoint.close()
                return
        events = []


def killed_in_mid_frame(name: str, address: str) -> None:
    """Sends a whole frame and half of one, and kills itself."""
    endpoint, _ = joined(name, address)
    endpoint.send("a", "whole", name.encode(), [np.ones(1000)])
    endpoint.flush(FOREVER)
    mark = endpoint.send("a", "half", name.encode(), [np.ones(8 << 20)])
    while not mark - (20 << 20) > endpoint.sent("a") > mark - (63 << 20):
        endpoint.flush(0)
    os.kill(os.getpid(), signal.SIGKILL)


def sender(name: str, address: str) -> None:
    """Sends without end, whatever becomes of it."""
    endpoint, _ = joined(name, address)
    array = np.arange(300_000, dtype=np.float32)
    number = 0
    while endpoint.peers:
        if len(endpoint._link("a").outgoing) < 10 << 20:
            endpoint.send("a", "step", b"%d" % number, [array, array])
            number += 1
        endpoint.poll(0)


def stranger(address: str) -> None:
    """Tries with another secret."""
    joined("x", address, b"another secret of some length")[0].close()


def idle_bytes(pool: BufferPool) -> int:
    """Bytes of a pool's unused buffers."""
    pool._collect()
    return sum(buffer.size for buffer in pool._idle)
