"""Print the claims about ResNet20 as a Markdown table: what each sweep shows, beside what the paper says.

    python scripts/claims_table.py [--store OUT/studies]

Numbers are those of the store if one is given, else those that come with the package.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surefoot.paper.claims import Evidence, Finding, by_preset


def main() -> None:
    """Judge, then print."""
    parser = argparse.ArgumentParser(description="Print the claims about ResNet20 by the size of the sweep.")
    parser.add_argument("--store", type=Path, help="folder with sweeps that were run here")
    table = by_preset(Evidence(parser.parse_args().store))
    presets = list(table[0][1])
    print(f"| claim | {' | '.join(reversed(presets))} | the paper, and the rule that decides |")
    print("|---" * (len(presets) + 2) + "|")
    for claim, found in table:
        cells = []
        for result in reversed(found.values()):
            shown = f"not run: {result}"
            if isinstance(result, Finding):
                shown = f"{'holds' if result.holds else '**fails**'}: {result.measured}"
            cells.append(shown)
        words = claim.claim.partition(": ")[2]
        print(f"| `{claim.id}` | {' | '.join(cells)} | {words}. *Rule:* {claim.rule} |")


if __name__ == "__main__":
    main()
