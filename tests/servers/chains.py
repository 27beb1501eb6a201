"""How many answers a command waits for one after another, whatever the computer's speed and load.

A request depends on the answers that its thread has had before, and on those of the work whose
result it waited for. The longest chain of such answers, times the time of one, is what a command
takes at least.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from urllib3 import HTTPConnectionPool

_thread = threading.local()


class Chains:
    """`longest` is the length of the longest chain so far."""

    longest = 0


@contextmanager
def chains() -> Iterator[Chains]:
    """Counts the answers to requests that threads send through urllib3, as the SDKs of all three
    clouds do.
    """
    counted, lock = Chains(), threading.Lock()
    ask, get, submit = HTTPConnectionPool.urlopen, Future.result, ThreadPoolExecutor.submit
    set_result, set_exception = Future.set_result, Future.set_exception

    # As urllib3 declares it.
    def urlopen(pool: Any, *words: Any, **options: Any) -> Any:  # noqa: ANN401
        try:
            return ask(pool, *words, **options)
        finally:
            _had(_length() + 1)
            with lock:
                counted.longest = max(counted.longest, _length())

    def result(future: Any, *words: Any, **options: Any) -> Any:  # noqa: ANN401 - of any type
        try:
            return get(future, *words, **options)
        finally:
            _had(getattr(future, "length", 0))

    # See above.
    def submitted(pool: Any, work: Callable[..., Any], *words: Any, **options: Any) -> Any:  # noqa: ANN401
        length = _length()

        def carried_out() -> Any:  # noqa: ANN401 - see above
            _thread.length = length
            return work(*words, **options)

        return submit(pool, carried_out)

    def ended(end: Callable[..., None]) -> Callable[..., None]:
        def noted(future: Any, *words: Any) -> None:  # noqa: ANN401 - see above
            future.length = _length()
            end(future, *words)

        return noted

    with (
        patch.object(HTTPConnectionPool, "urlopen", urlopen),
        patch.object(Future, "result", result),
        patch.object(ThreadPoolExecutor, "submit", submitted),
        patch.object(Future, "set_result", ended(set_result)),
        patch.object(Future, "set_exception", ended(set_exception)),
    ):
        _thread.length = 0
        yield counted


def _length() -> int:
    return int(getattr(_thread, "length", 0))


def _had(length: int) -> None:
    _thread.length = max(_length(), length)
