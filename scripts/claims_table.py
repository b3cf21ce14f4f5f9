"""Print the claims about ResNet20 as one table: what the small and the medium sweep show, beside what the paper says.

    python scripts/claims_table.py [--store OUT/studies] [PRESET ...]

Numbers are those of the store if one is given, else those that come with the package. The table is Markdown, for
docs/reproduction.md. A sweep that there is not has an empty column.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surefoot.paper.claims import Evidence, Finding, compared


def cell(found: Finding | str | None) -> str:
    """Verdict and numbers, or what is missing."""
    if found is None:
        return "–"
    if isinstance(found, str):
        return f"not run: {found}"
    verdict = found.verdict if found.holds else f"**{found.verdict}**"
    return f"{verdict}: {found.measured}"


def main() -> None:
    """Judge, then print."""
    parser = argparse.ArgumentParser(description="Print the claims about ResNet20 by the size of the sweep.")
    parser.add_argument("presets", nargs="*", metavar="PRESET", help="columns, by default small and medium")
    parser.add_argument("--store", type=Path, help="folder with sweeps that were run here")
    arguments = parser.parse_args()
    presets = arguments.presets or ["small", "medium"]
    print(f"| claim | {' | '.join(presets)} | the paper, and the rule that decides |")
    print("|---" * (len(presets) + 2) + "|")
    for claim, found in compared(Evidence(arguments.store, presets)):
        cells = (cell(found.get(preset)) for preset in presets)
        words = claim.claim.partition(": ")[2]
        print(f"| `{claim.id}` | {' | '.join(cells)} | {words}. *Rule:* {claim.rule} |")


if __name__ == "__main__":
    main()
