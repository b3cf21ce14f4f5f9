"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, what: str, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a new file that takes the name ``path`` when the block ends well, and vanishes if it does not.

    Args:
        path: The file to make or replace, in a folder that is there.
        what: What is being stored, for the message of a full disk, which does not say which file.
        sync: Bring the file to the disk itself, which may turn out to be full only then; it also outlives a power cut.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:  # it says itself what it is about
            raise
        raise OSError(error.errno, f"cannot store {what}: {error.strerror}", str(part)) from error
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, what: str, *, sync: bool = True) -> None:
    """Make or replace a file with this content; the arguments are those of :func:`replacing`."""
    with replacing(path, what, sync=sync) as file:
        file.write(content.encode() if isinstance(content, str) else content)
