"""Callbacks that stand for somebody who does not ask: defaults where a caller listens to nothing,
or leaves a question to the callee.
"""


def unheard(*_: object) -> None:
    """Takes a report that nobody listens to; also the answer that nothing is known."""


def never(*_: object) -> bool:
    """The answer to a question, such as whether to stop, that nobody else answers."""
    return False


def always(*_: object) -> bool:
    """The answer to a question, such as whether an order fits, that nobody else answers."""
    return True
