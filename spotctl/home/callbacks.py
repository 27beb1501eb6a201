"""Defaults of callbacks, for callers that listen to nothing, or leave a question to the callee."""


def unheard(*_: object) -> None:
    """Takes a report, and says nothing; also the answer that something is not known."""


def never(*_: object) -> bool:
    """Answers no to a question that the caller leaves open, such as whether to stop."""
    return False


def always(*_: object) -> bool:
    """Answers yes to a question that the caller leaves open, such as whether an order fits."""
    return True
