"""Every claim of the paper's theory and experiments, as a check on real runs that prints its numbers."""

from surefoot.paper.claims._claim import Checked, Claim, Evidence, Finding, NotRun, all_claims, check, judge, sections

__all__ = ["Checked", "Claim", "Evidence", "Finding", "NotRun", "all_claims", "check", "judge", "sections"]
