"""Worst-case verification: each statement as a semidefinite program, solved by open solvers (``surefoot[pep]``).

A performance estimation problem (PEP) maximises a quantity over all functions of a class. For convex and weakly convex
functions that is a semidefinite program over the values and subgradients at finitely many points, so the largest value
can be computed, with a proof by duality. One function here is one statement of the paper or of surefoot's own:

==========================  ==============================  ===================================================
name                        function                        worst case of
==========================  ==============================  ===================================================
spp                         spp_index                       the index of the proximal point, convex losses
spp-weakly-convex           spp_index(weak_convexity=η)     the same, weakly convex losses
one-step                    one_step_index                  the base inequality for SGD, SPS and NGN
last-iterate                last_iterate                    f(x_T) − f⋆ against Ω_last
average-iterate             average_iterate                 f at the averaged iterate against Ω_avg
stochastic-last-iterate     last_iterate(losses=2)          the same with two losses drawn at random
stochastic-average-iterate  average_iterate(losses=2)
average-rate                average_rate                    the rates of SPS and NGN on smooth losses
interpolation-rate          interpolation_rate              the rate of SPS under interpolation
one-step-level              one_step_index(level=C)         the base inequality with a level
last-iterate-level          last_iterate_level              Ω_last with a level, its price paid or left out
==========================  ==============================  ===================================================

:func:`run` verifies them by name on many cases, and keeps the results.
A status other than ``optimal`` is never taken as a number: the other solver is tried, and if that fails too,
:class:`SolverError` is raised (``run`` reports it in the result).
"""

from surefoot.pep._one_step import one_step_index, spp_index
from surefoot.pep._runs import (
    average_iterate,
    average_rate,
    interpolation_rate,
    last_iterate,
    last_iterate_level,
)
from surefoot.pep._solver import SolverError, WorstCase
from surefoot.pep._verify import CACHE_VARIABLE, STATEMENTS, Statement, run, summary, table

__all__ = [
    "CACHE_VARIABLE", "STATEMENTS", "SolverError", "Statement", "WorstCase", "average_iterate", "average_rate",
    "interpolation_rate", "last_iterate", "last_iterate_level", "one_step_index", "run", "spp_index",
    "summary", "table",
]  # fmt: skip
