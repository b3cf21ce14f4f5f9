"""Benchmarks one after the other, and at the end what they say of goals that were missed.

    python benchmarks/_all.py [--evidence] [--quick] [NAME ...]

By default these are the benchmarks of speed: ratios against peers and limits, 20 minutes on two cores. With
``--evidence`` they are those of quality, which train networks for hours: how often answers are right. A goal is missed
where a line of output says "NO" or "missed", or where a benchmark fails. The others run all the same.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

_MISSED = re.compile(r"(?<![\w-])(NO|missed|MISSED)(?![\w-])")
_HERE = Path(__file__).parent
_QUICK = {
    "dask_engine": "--seconds 3",
    "forecast": "--recorded",
    "inputs": "--batches 10 --steps 1 --turns 2",
    "networks": "--steps 1 --turns 2 --layouts 1",
    "no_rate": "--quick",
    "optim": "--quick",
    "optimizer_rates": "--quick",
    "parallel": "--repeats 1 --horizon 200",
    "search": "--cases old --quick",
}
"""Arguments of benchmarks that are shorter so."""
_ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
"""Some virtual machines list AMX among their instructions and do not run it: bfloat16 would end the process."""
_SPEED = ("theory", "sweep", "optim", "networks", "inputs", "monitor", "watch", "dask_engine", "parallel")
"""Benchmarks that time something; all others tell how good an answer is."""
_HOURS = ("finders", "loss_over_rate", "verdict")
"""Benchmarks of quality that are long however they are asked."""


def run(path: Path, arguments: str = "") -> list[str]:
    """Run a benchmark, show its output, and return the lines that tell of a goal that was missed."""
    print(f"== {path.name} {arguments}".rstrip(), flush=True)
    found, start = [], time.monotonic()
    command = [sys.executable, path, *arguments.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_ENVIRONMENT | os.environ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if _MISSED.search(line):
                found.append(" ".join(line.replace("│", "|").split()).strip("| "))
    print(f"== {path.name} took {time.monotonic() - start:.0f} s", flush=True)
    if process.returncode:
        found.append(f"failed with exit code {process.returncode}")
    return found


def main() -> None:
    known = {path.stem: path for path in sorted(_HERE.glob("[a-z]*.py"))}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(known)}")
    parser.add_argument("--evidence", action="store_true", help="by default those of quality, in place of speed")
    parser.add_argument("--quick", action="store_true", help=f"shortened, and without {', '.join(_HOURS)}")
    given = parser.parse_args()
    chosen = [name for name in known if name not in _SPEED] if given.evidence else list(_SPEED)
    left_out = [name for name in chosen if given.quick and name in _HOURS]
    names = given.names or [name for name in chosen if name not in left_out]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"NAME must be one of {', '.join(known)}, got {', '.join(unknown)}")
    missed = {name: run(known[name], _QUICK.get(name, "") if given.quick else "") for name in names}
    print("\n== missed")
    for name, lines in missed.items():
        for line in lines:
            print(f"{name}: {line}")
    if left_out and not given.names:
        print(f"not run, because of --quick: {', '.join(left_out)}")
    if not any(missed.values()):
        print("nothing")
    if any("failed with" in line for lines in missed.values() for line in lines):
        sys.exit(1)


if __name__ == "__main__":
    main()
