"""Synthetic linear regression, as in the paper's first experiments."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot._base.arguments import number, whole


class LinearRegressionData(NamedTuple):
    """Data of a linear regression: ``b = A @ x_hat``, plus noise."""

    A: NDArray[np.float64]
    """Features of shape (n, d), each column of norm 10."""
    b: NDArray[np.float64]
    """Targets of shape (n,)."""
    x_hat: NDArray[np.float64]
    """The solution that made ``b``, of norm 1. It minimises the loss if there is no noise."""


def linear_regression(n: int = 50, d: int = 10, noise: float = 0.0, data_seed: int = 0) -> LinearRegressionData:
    r"""Draw the paper's synthetic linear regression.

    .. math::

        A \sim N(0,1)^{n \times d} + 1, \quad A_{:j} \leftarrow 10\,\xi_j A_{:j},\ \xi_j \sim N(0,1), \quad
        A_{ij} \text{ kept with probability } \min(1, 30 \ln(n)/n), \quad A_{:j} \leftarrow 10 A_{:j}/\|A_{:j}\|,

    :math:`\hat x \sim N(0,1)^d` scaled to norm 1, and :math:`b = A\hat x + \text{noise}\cdot\varepsilon` with
    :math:`\varepsilon \sim N(0,1)^n`. The noise goes on ``b`` (the paper's text says on ``A``; its experiments have it
    here). Up to n = 150 nothing is dropped. Of the random column factor only the sign outlives the scaling.
    ``A`` and ``x_hat`` do not depend on ``noise``.

    Args:
        n: Rows, at least 2.
        d: Columns.
        noise: Standard deviation of the noise on ``b``.
        data_seed: Of the random numbers.

    >>> data = linear_regression()
    >>> data.A.shape, bool(np.allclose(data.A @ data.x_hat, data.b))
    ((50, 10), True)
    """
    for argument, value, least in (("n", n, 2), ("d", d, 1), ("data_seed", data_seed, 0)):
        whole(argument, value, least)
    number("noise", noise, least=0)
    random = np.random.default_rng(data_seed)
    A = (random.standard_normal((n, d)) + 1) * (10 * random.standard_normal(d))
    A *= random.random((n, d)) < min(1.0, 30 * math.log(n) / n)
    A *= 10 / np.linalg.norm(A, axis=0)
    x_hat = random.standard_normal(d)
    x_hat /= np.linalg.norm(x_hat)
    return LinearRegressionData(A, A @ x_hat + noise * random.standard_normal(n), x_hat)
