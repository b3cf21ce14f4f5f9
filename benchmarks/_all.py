"""All benchmarks one after the other, and at the end what they say of goals that were missed.

    python benchmarks/_all.py [NAME ...]

A goal is missed where a line of output says "NO" or "missed", or where a benchmark fails. The others run all the same.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

_MISSED = re.compile(r"(?<![\w-])(NO|missed|MISSED)(?![\w-])")
_HERE = Path(__file__).parent


def run(path: Path) -> list[str]:
    """Run a benchmark, show its output, and return the lines that tell of a goal that was missed."""
    print(f"== {path.name}", flush=True)
    found = []
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if _MISSED.search(line):
                found.append(" ".join(line.replace("│", "|").split()).strip("| "))
    if process.returncode:
        found.append(f"failed with exit code {process.returncode}")
    return found


def main() -> None:
    known = {path.stem: path for path in sorted(_HERE.glob("[a-z]*.py"))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(known)}; none means all")
    names = parser.parse_args().names or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"NAME must be one of {', '.join(known)}, got {', '.join(unknown)}")
    missed = {name: run(known[name]) for name in names}
    print("\n== missed")
    for name, lines in missed.items():
        for line in lines:
            print(f"{name}: {line}")
    if not any(missed.values()):
        print("nothing")
    if any("failed with" in line for lines in missed.values() for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
