"""The conformance suite, for extensions of your own: one line checks a model or an optimizer.

>>> from surefoot.testing import check_model, check_optimizer
>>> from surefoot.theory.models import SquareRoot
>>> import surefoot.optim as sfo
>>> check_model(SquareRoot())
>>> check_optimizer(lambda params: sfo.NGN(params, lr=0.1))

Both raise ``AssertionError`` with a message that says what does not hold, and where.
"""

from surefoot.testing._model import check_model
from surefoot.testing._optimizer import check_optimizer

__all__ = ["check_model", "check_optimizer"]
