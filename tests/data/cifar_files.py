"""Small files in the layouts of CIFAR-10, and what a release of them would have published."""

import functools
import gzip
import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

from surefoot.data.cifar import RELEASE, Release

ROWS = 5


@functools.cache
def batches() -> dict[str, bytes]:
    """Each batch in the binary layout."""
    random = np.random.default_rng(0)
    found = {}
    for name in RELEASE.names:
        rows = random.integers(0, 256, (ROWS, 3073), dtype=np.uint8)
        rows[:, 0] = random.integers(0, 10, ROWS)
        found[name] = rows.tobytes()
    return found


def python_batch(rows: bytes) -> bytes:
    """The same in the Python layout, with the opcodes that Python 2 wrote."""
    table = np.frombuffer(rows, np.uint8).reshape(-1, 3073)
    labels = b"".join(b"K" + bytes([label]) for label in table[:, 0].tolist())
    unset = b"J" + struct.pack("<i", -1)
    dtype = b"cnumpy\ndtype\n" + _text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + _text(b"|") + b"NNN" + unset + unset + b"K\x00tb"
    shape = b"M" + struct.pack("<H", len(table)) + b"M" + struct.pack("<H", 3072) + b"\x86"
    pixels = table[:, 1:].tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text(b"b") + b"\x87R"
        b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    )
    return b"\x80\x02}(" + _text(b"labels") + b"](" + labels + b"e" + _text(b"data") + array + b"u."


def files(layout: str) -> dict[str, bytes]:
    """Names and contents of the batches in a layout, ``"bin"`` or ``"py"``."""
    if layout == "bin":
        return {name + ".bin": rows for name, rows in batches().items()}
    return {name: python_batch(rows) for name, rows in batches().items()}


def folder(path: Path, contents: dict[str, bytes]) -> Path:
    """A folder with the files."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (path / name).write_bytes(content)
    return path


def archive(contents: dict[str, bytes], prefix: str = "cifar-10-batches-bin/", *more: tarfile.TarInfo) -> bytes:
    """A compressed archive with the files, in an order of its own, and with more members that have no content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in reversed(contents.items()):
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in more:
            tar.addfile(member)
    return gzip.compress(buffer.getvalue(), mtime=0)


@functools.cache
def release() -> Release:
    """What is known about these files."""
    md5 = {layout: {name: _md5(content) for name, content in files(layout).items()} for layout in ("bin", "py")}
    return Release(
        rows=ROWS,
        binary_md5={name.removesuffix(".bin"): value for name, value in md5["bin"].items()},
        python_md5=md5["py"],
        archive_sha256=hashlib.sha256(archive(files("bin"))).hexdigest(),
    )


def _text(content: bytes) -> bytes:
    return b"U" + bytes([len(content)]) + content


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
