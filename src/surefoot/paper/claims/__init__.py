"""Every claim of the paper's theory and experiments, as a check on real runs that prints its numbers."""

from surefoot.paper.claims import _convex, _sweeps, _theory  # noqa: F401  they register
from surefoot.paper.claims._claim import SECTIONS, Checked, Claim, Evidence, Finding, NotRun, all_claims, check, judge
from surefoot.paper.claims._sweeps import by_preset

__all__ = [
    "SECTIONS", "Checked", "Claim", "Evidence", "Finding", "NotRun", "all_claims", "by_preset", "check", "judge",
]  # fmt: skip
