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
from surefoot.study._result import KnownOptimum, Result
from surefoot.study._sensitivity import Sensitivity, SensitivityTable, measure_windows
from surefoot.study._show import table, usual_bias, windows
from surefoot.study._study import LowerBoundWarning, Plan, Study, StudyInterrupted

__all__ = [
    "CheckpointError", "ClusterError", "IdentityError", "KnownOptimum", "LowerBoundWarning", "Method", "Plan",
    "Result", "RunFailed", "Sensitivity", "SensitivityTable", "StoreError", "Study",
    "StudyInterrupted", "Trace", "measure_windows", "parse_method", "table", "usual_bias", "windows",
]  # fmt: skip
