"""Types of numpy arrays."""

import numpy as np
from numpy.typing import NDArray

from pricing_data.series import Ints

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

__all__ = ["Bools", "Floats", "Ints"]
