"""The files of a watched run: a page that is replaced as a whole, and a trace that only grows."""

from __future__ import annotations

import os
from pathlib import Path

from surefoot._base.files import write_whole

COLUMNS = ("optimizer", "step", "loss", "lr", "grad_norm")
"""The columns of the trace. What is not finite is ``inf``; what was not measured is empty."""


class Folder:
    """The folder of page and trace; unless the user has chosen one, it is made when it is first needed."""

    def __init__(self, stem: str, chosen: Path | None) -> None:
        self._stem = Path(os.path.abspath("surefoot-watch"), stem)  # the script may change the working directory
        self.path: Path | None = None if chosen is None else Path(os.path.abspath(chosen))
        """The folder, once it is there."""
        if self.path is not None:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OSError(f"--out must be a folder, {str(chosen)!r} cannot be one: {error.strerror}") from error
            if self.trace.exists():
                raise FileExistsError(f"--out must be a folder without the trace of another run, got {str(chosen)!r}")

    @property
    def page(self) -> Path:
        """The file of the page."""
        return self.take() / "page.html"

    @property
    def trace(self) -> Path:
        """The file of the trace."""
        return self.take() / "trace.csv"

    def take(self) -> Path:
        """The folder, which is made if it is not there."""
        number = 1
        while self.path is None:
            path = self._stem.with_name(f"{self._stem.name}-{number}")
            try:
                path.mkdir(parents=True)  # fails if another run has taken it: the first free one is ours
                self.path = path
            except FileExistsError:
                number += 1
            except OSError as error:
                raise OSError(
                    f"no folder {str(path)!r} can be made ({error.strerror}): give another by --out"
                ) from error
        return self.path

    def append(self, rows: str) -> None:
        """Add rows to the trace, in one write: whoever reads it sees whole rows."""
        if not self.trace.exists():
            rows = ",".join(COLUMNS) + "\n" + rows
        with open(self.trace, "ab", buffering=0) as file:
            file.write(rows.encode())

    def replace_page(self, text: str) -> None:
        """Put a page in the place of the last one, which a reader has seen whole or not at all."""
        write_whole(self.page, text, "the page of a watched run", sync=False)
