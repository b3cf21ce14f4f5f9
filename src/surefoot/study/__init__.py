"""Studies: methods × learning rates × seeds on one problem, kept in one file, compared with the theory's bound.

>>> from surefoot.study import Study
>>> study = Study("linear-regression", methods=["sgd", "ngn"], lrs=[0.01, 0.1], seeds=2, epochs=2, batch_size=5)
>>> result = study.run()
>>> result.sensitivity(distance=1.0)["sgd"].best_rate
0.1
"""

from surefoot._identity import IdentityError
from surefoot.runs import (
    CheckpointError,
    ClusterError,
    Method,
    StoreError,
    Trace,
    parse_method,
)
from surefoot.runs import RunError as RunFailed
from surefoot.runs import RunPlan as Run
from surefoot.study._export import tidy
from surefoot.study._optimum import KnownOptimum, Pool
from surefoot.study._result import Result
from surefoot.study._sensitivity import Sensitivity, SensitivityTable, measure_windows
from surefoot.study._show import table, usual_bias, windows
from surefoot.study._spec import Spec
from surefoot.study._study import Plan, Study
from surefoot.study._sweep import LowerBoundWarning, StudyInterrupted

__all__ = [
    "CheckpointError", "ClusterError", "IdentityError", "KnownOptimum", "LowerBoundWarning", "Method", "Plan", "Pool",
    "Result", "Run", "RunFailed", "Sensitivity", "SensitivityTable", "Spec", "StoreError", "Study",
    "StudyInterrupted", "Trace", "measure_windows", "parse_method", "table", "tidy", "usual_bias", "windows",
]  # fmt: skip
