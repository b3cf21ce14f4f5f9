"""Convergence bounds of model-based methods in terms of their stability indices.

Time is the last axis of every array, and everything broadcasts over the axes before it (methods × rates × seeds). The
indices are expectations E[δ_t]: average over the seeds first. Write S_k = α_k + … + α_T.

The theorems need batches that are drawn independently (reshuffled epochs are not covered, and can violate them), a
convex loss, and a model below it; :func:`~surefoot.theory.models.safe_delta` is an index that does without the last.
"""

from surefoot.theory.bounds._closed import lipschitz_rate, loizou_sps, power_law
from surefoot.theory.bounds._constants import (
    base_inequality_slack,
    expected_delta_spp,
    expected_delta_sps,
    interpolation_constant,
    local_exponent,
    lower_bound_error,
)
from surefoot.theory.bounds._iterates import (
    Bound,
    average_iterate,
    distance_bias,
    envelope_bias,
    last_iterate,
    last_iterate_terms,
    last_iterate_weights,
    weakly_convex,
)

__all__ = [
    "Bound",
    "average_iterate",
    "base_inequality_slack",
    "distance_bias",
    "envelope_bias",
    "expected_delta_spp",
    "expected_delta_sps",
    "interpolation_constant",
    "last_iterate",
    "last_iterate_terms",
    "last_iterate_weights",
    "lipschitz_rate",
    "local_exponent",
    "loizou_sps",
    "lower_bound_error",
    "power_law",
    "weakly_convex",
]
