"""Parameters and updates shared by tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from agileml.params.layout import Array, ArraySpec, Params

DTYPES = ("<f4", "<f8", "<i4", "<i8")

shapes = st.tuples(st.integers(0, 12), st.lists(st.integers(0, 3), max_size=2)).map(
    lambda made: (made[0], *made[1])
)

specs = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(shapes, st.sampled_from(DTYPES)), min_size=1, max_size=4
).map(lambda made: tuple(ArraySpec(name, shape, dtype) for name, (shape, dtype) in made.items()))

seeds = st.integers(0, 2**32 - 1)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Integers, or floats over six decades and signed zeros: sums of them depend on their order."""
    if np.dtype(dtype).kind == "i":
        return rng.integers(-100, 100, shape).astype(dtype)
    values = rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(-3, 3, shape)
    return np.where(rng.random(shape) < 0.1, rng.choice([-0.0, 0.0], shape), values).astype(dtype)


def params_of(rng: np.random.Generator, specs: tuple[ArraySpec, ...]) -> Params:
    """Arrays for specifications."""
    return {spec.name: numbers(rng, spec.shape, spec.dtype) for spec in specs}


def same_bits(one: Array, other: Array) -> bool:
    """Equality that tells -0.0 from 0.0."""
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )
