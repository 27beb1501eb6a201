"""Types of numpy arrays; `pricing_data.series` has the integers."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
