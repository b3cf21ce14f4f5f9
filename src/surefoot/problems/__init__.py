"""What is minimised: losses, gradients, proximal points and minima of the problems that studies sweep over."""

from surefoot.problems._constants import Constants, constants
from surefoot.problems._create import create
from surefoot.problems._linear_predictor import LinearPredictor
from surefoot.problems._linear_regression import LinearRegression
from surefoot.problems._logistic import LogisticRegression
from surefoot.problems._problem import WIDTH, Optimum, Problem, Proximal, SimpleProblem, pack, unpack
from surefoot.problems._quadratic import Quadratic
from surefoot.problems._toy import ToyFunction

__all__ = [
    "WIDTH",
    "Constants",
    "LinearPredictor",
    "LinearRegression",
    "LogisticRegression",
    "Optimum",
    "Problem",
    "Proximal",
    "Quadratic",
    "SimpleProblem",
    "ToyFunction",
    "constants",
    "create",
    "pack",
    "unpack",
]
