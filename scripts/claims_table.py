"""Print the claims about ResNet20 as a Markdown table: the rule, what each size says, and what earlier rules said.

    python scripts/claims_table.py [--store OUT/studies]

Numbers are those of the store if it has any, else those that come with the package.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surefoot.paper.claims import SECTIONS, check

COLUMNS = ("before", "small", "medium", "start")


def main() -> None:
    """Judge, then print."""
    parser = argparse.ArgumentParser(description="Print the claims about ResNet20 by the size of the sweep.")
    parser.add_argument("--store", type=Path, help="folder with sweeps that were run here")
    rows = check(SECTIONS["ResNet20 on CIFAR-10"], folder=parser.parse_args().store)
    print(f"| claim | rule | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for row in rows:
        cells = [row.sweeps.get(column, "") for column in COLUMNS]
        cells = ["" if words.startswith("there ") else words for words in cells]
        print(f"| `{row.id}`: {row.claim.partition(': ')[2]} | {row.rule} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
