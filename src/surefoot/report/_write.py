"""The page: its parts put together, and written whole or not at all."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Mapping
from pathlib import Path

from surefoot._base.files import write_whole
from surefoot.plots import looks, pages
from surefoot.report._payload import payload, title_of
from surefoot.study import Result, StoreError


def write(result: Result, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write the page of one study; see :func:`write_many`.

    Args:
        result: The study's result; unfinished ones are fine, as long as one run is done.
        path: The HTML file to write.
        title: What the page is called, by default the problem and its data.

    >>> import tempfile
    >>> from surefoot.study import Study
    >>> study = Study("linear-regression", methods=["sgd", "sps"], lrs=[0.01, 0.1], seeds=2, epochs=2, batch_size=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(study.run(), Path(folder, "report.html")).name
    'report.html'
    """
    name = title_of(result) if title is None else title
    return write_many({name: result}, path, title=name)


def write_many(
    results: Mapping[str, Result], path: str | os.PathLike[str], *, title: str = "Which learning rates hold"
) -> Path:
    """Write one page for several studies, which stand behind tabs.

    The page is one file that needs no network. The envelope is computed if the results come from ``Study.run`` and it
    was not computed before (:func:`~surefoot.report.prepare`), and kept with the runs.

    Args:
        results: The results by the names of their tabs, at least one.
        path: The HTML file to write; it appears whole or not at all.
        title: What the page is called.

    Raises:
        ValueError: There is no result, or one of them has no finished run.
    """
    path = Path(path)
    if not results:
        raise ValueError(f"results must hold at least one result, got {results!r}")
    if path.is_dir():
        raise IsADirectoryError(f"path must be an HTML file, {str(path)!r} is a folder")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    drawn = looks(method for result in results.values() for method in result.algorithms)
    blocks = []
    for name, result in results.items():
        try:
            text = payload(result, name, drawn)
        except ValueError as error:
            raise ValueError(f"study {name!r} has no page: {error}") from error
        blocks.append(f'<script type="application/json" data-study="{html.escape(name)}">{text}</script>')
    logo = pages.part("report", "logo.svg").strip()
    script = [pages.part("plots", "numbers.js"), *(pages.part("report", f"{n}.js") for n in ("chart", "panels", "app"))]
    page = pages.filled(
        "report",
        "\n".join(script),
        images="data:",
        title=html.escape(title),
        logo=logo.replace('width="32" height="32"', 'width="22" height="22"', 1),
        icon=f"data:image/svg+xml;base64,{base64.b64encode(logo.encode()).decode()}",
        studies="\n".join(blocks),
    )
    write_whole(path, page, "the page")
    return path


def from_store(
    store: str | os.PathLike[str], path: str | os.PathLike[str], *, title: str | None = None, study: int | None = None
) -> Path:
    """Write the page of a study from its file; one whose runs have all diverged has a page too, which says so.

    Args:
        store: The study's file, as ``Study.run(store=…)`` writes it.
        path: The HTML file to write.
        title: What the page is called, by default the problem and its data.
        study: Position of the study in a file that holds several, by default the one that was started last.

    Raises:
        FileNotFoundError: There is no such file.
        StoreError: It is no study, is damaged, or holds no finished run.
    """
    result = Result.load(store, study=study)
    if bool((result.dataset.status == "missing").all()):
        raise StoreError(f"{store}: the study has no finished run yet; run it with this store first")
    return write(result, path, title=title)
