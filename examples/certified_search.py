"""The rate with the smallest bound, with a proof, without running most of the grid."""

import numpy as np

import surefoot as sf
from surefoot.problems import LinearRegression
from surefoot.search import ProblemRun

runs = ProblemRun(LinearRegression(), "sgd", batch_size=5)
found = sf.tune(runs, lrs=np.geomspace(1e-3, 1e2, 16), horizon=100, objective="bound", bias=1.0)
print(f"lr {found.lr:.3g}: bound {found.bound:.3g}, for {found.cost:.0%} of the grid's steps")
print(found.certificate)
assert found.certificate.holds
