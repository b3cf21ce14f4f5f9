"""The live page: one self-contained file that loads itself again while the run goes on."""

from __future__ import annotations

import time
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from surefoot._base.text import html_table, visible
from surefoot.monitor import State
from surefoot.plots import pages
from surefoot.watch._chart import chart

if TYPE_CHECKING:
    from surefoot.watch._session import Session
    from surefoot.watch._watched import Watched

_SHOWN = 24
"""Optimizers on a page; of a script that builds more, the last ones."""


def page(session: Session) -> str:
    """The page of a run as it stands."""
    now = time.time()
    is_running = session.status == "running"
    hidden = len(session.watched) - _SHOWN
    left_out = f'<p class="soft">{hidden} earlier optimizers are in the trace only.</p>' if hidden > 0 else ""
    return pages.filled(
        "watch",
        pages.part("watch", "page.js"),
        state="running" if is_running else "over",
        written=f"{now:.0f}",
        again='<noscript><meta http-equiv="refresh" content="5"></noscript>' if is_running else "",
        tab=escape(visible(f"{_short(session)} · {session.script.stem}")),
        title=escape(visible(session.script.title)),
        status=escape(session.status.capitalize()),
        when=f"{_clock(session.begun)} to {_clock(now)} ({timedelta(seconds=int(now - session.begun))})",
        optimizers=left_out + "".join(_section(watched) for watched in session.watched[-_SHOWN:]),
    )


def _short(session: Session) -> str:
    """The states of all verdicts, for the browser's tab."""
    judged = [watched.verdict for watched in session.watched if watched.verdict is not None]
    return ", ".join(dict.fromkeys(verdict.state.capitalize() for verdict in judged)) or "Watching"


def _section(watched: Watched) -> str:
    known = watched.planned.known
    length = (
        f" of {known.steps} ({escape(known.source)})" if known is not None else "; the length of the run is not known"
    )
    state = State.UNKNOWN if watched.verdict is None else watched.verdict.state
    kind = state.replace(" ", "-")
    table = html_table([("step", "verdict"), *((str(step), str(verdict)) for step, verdict in watched.changes[-12:])])
    earlier = (
        f"<details><summary>How the verdict has changed</summary>{table}</details>" if len(watched.changes) > 1 else ""
    )
    lost = int(np.isinf(watched.curves["batch loss"]).sum())
    bad = f" The loss was not finite at {lost} steps." if lost else ""
    horizon, rates = (
        None if known is None else known.steps,
        None if watched.verdict is None else watched.verdict.lr_range,
    )
    figures = "".join(
        chart(title, values, horizon, rates if title == "learning rate" else None)
        for title, values in watched.curves.items()
    )
    return f"""<section>
<h2>{escape(watched.name)} <span class="soft">{watched.parameters:,} parameters</span></h2>
<p class="verdict {kind}">{escape(visible(watched.summary))}</p>
<p class="soft">Step {watched.steps}{length}.{bad}</p>
<div class="charts">{figures}</div>
{earlier}
</section>
"""


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))
