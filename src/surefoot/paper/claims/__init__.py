"""Every claim of the paper's theory and experiments, as a check on real runs that prints its numbers."""

from surefoot.paper.claims import _cifar10, _convex, _theory  # noqa: F401  they register
from surefoot.paper.claims._claim import SECTIONS, Checked, Claim, Evidence, Finding, all_claims, check

__all__ = ["SECTIONS", "Checked", "Claim", "Evidence", "Finding", "all_claims", "check"]
