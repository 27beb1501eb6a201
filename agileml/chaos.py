"""Chaos: what is to befall a job, and when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chaos:
    """A list of things to do to a job, made from a text such as `at clock 20 evict half warn 5s`."""
