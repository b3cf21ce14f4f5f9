"""What is minimised: losses, gradients, proximal points and minima of the problems that studies sweep over."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surefoot.problems._constants import Constants, constants
from surefoot.problems._create import create
from surefoot.problems._linear_predictor import LinearPredictor
from surefoot.problems._linear_regression import LinearRegression
from surefoot.problems._logistic import LogisticRegression
from surefoot.problems._network import NetworkProblem, Starts
from surefoot.problems._problem import ArrayProblem, Optimum, Problem, Proximal, Rows
from surefoot.problems._threads import one_blas_thread
from surefoot.problems.toy import ToyFunction

if TYPE_CHECKING:
    from surefoot.problems._inputs import DatasetInputs, ImageInputs, Inputs, TensorInputs, seeded

__all__ = [
    "ArrayProblem",
    "Constants",
    "DatasetInputs",
    "ImageInputs",
    "Inputs",
    "LinearPredictor",
    "LinearRegression",
    "LogisticRegression",
    "NetworkProblem",
    "Optimum",
    "Problem",
    "Proximal",
    "Rows",
    "Starts",
    "TensorInputs",
    "ToyFunction",
    "constants",
    "create",
    "one_blas_thread",
    "seeded",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # what is not here yet imports torch, which convex problems do without
        return getattr(importlib.import_module("surefoot.problems._inputs"), name)
    raise AttributeError(f"module 'surefoot.problems' has no attribute {name!r}")
