"""How far results are from what they should be."""

import numpy as np


def relative_error(got, exact):
    """By the norm, in float64."""
    return np.linalg.norm(np.asarray(got, np.float64) - exact) / np.linalg.norm(exact)
