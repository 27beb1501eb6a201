"""Forwards connections between this computer and the machines of a test cloud, silently, as a
network does.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

_CHUNK = 1 << 16
_CONNECT_SECONDS = 127.0
"""How long Linux tries to connect to a host that does not answer."""
_AGAIN_SECONDS = 0.05


Forward = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _at_once() -> None:
    pass


def relay(
    target: tuple[str, int],
    namespace: Callable[[], AbstractContextManager[None]] = nullcontext,
    admitted: Callable[[], Awaitable[None]] = _at_once,
) -> Forward:
    """Forwards connections to a target; the socket to it is made in a namespace, or in that of this
    process.

    If the target does not answer, neither does the relay: the caller sees silence, as with a
    machine that is gone.
    """

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(admitted(), _CONNECT_SECONDS)
            far = await _connected(target, namespace)
        except TimeoutError:
            far = None
        if far is None:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(sock=far)
        await asyncio.gather(_pump(reader, far_writer), _pump_back(far_reader, writer, reader))

    return forward


async def _connected(
    target: tuple[str, int], namespace: Callable[[], AbstractContextManager[None]]
) -> socket.socket | None:
    """A connection, or None if it is refused; tried as long as TCP does for a host that does not
    answer (yet).
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _CONNECT_SECONDS
    while loop.time() < give_up:
        with namespace():
            far = socket.socket()
        far.setblocking(False)
        try:
            await loop.sock_connect(far, target)
        except OSError as error:
            far.close()
            if isinstance(error, ConnectionRefusedError):
                return None
            await asyncio.sleep(_AGAIN_SECONDS)
        else:
            return far
    return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None) -> None:
    try:
        while data := await reader.read(_CHUNK):
            if writer is not None:
                writer.write(data)
                await writer.drain()
        if writer is not None:
            writer.write_eof()
    except OSError:
        if writer is not None:
            writer.transport.abort()


async def _pump_back(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: asyncio.StreamReader
) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except ConnectionError:
        writer.transport.abort()
    except OSError:
        # The machine is unreachable, which the caller must not notice.
        await _pump(caller, None)
        writer.close()
