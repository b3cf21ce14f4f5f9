"""The live page: one self-contained file that loads itself again while the run goes on."""

from __future__ import annotations

import time
from html import escape
from typing import TYPE_CHECKING

from surefoot._version import __version__
from surefoot.monitor import State
from surefoot.plots import pages
from surefoot.watch._chart import chart, number
from surefoot.watch._session import last_word

if TYPE_CHECKING:
    from surefoot.watch._session import Session
    from surefoot.watch._watched import Watched

_SHOWN = 24
"""Optimizers on a page; of a script that builds more, the last ones."""


def page(session: Session) -> str:
    """The page of a run as it stands."""
    now = time.time()
    style, script = pages.stylesheet("watch"), pages.part("watch", "page.js")
    is_running = session.status == "running"
    hidden = len(session.watched) - _SHOWN
    body = "".join(_section(watched) for watched in session.watched[-_SHOWN:])
    if hidden > 0:
        body = f'<p class="soft">{hidden} earlier optimizers are in the trace only.</p>{body}'
    again = "" if not is_running else '<noscript><meta http-equiv="refresh" content="5"></noscript>'
    title = escape(session.script.title)
    state = "running" if is_running else "over"
    return f"""<!doctype html>
<html lang="en" data-state="{state}" data-written="{now:.0f}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{pages.policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="surefoot {__version__}">{again}
<title>{escape(_short(session))} · {escape(session.script.stem)}</title>
<style>{style}</style>
</head>
<body>
<p class="brand">surefoot watch</p>
<h1>{title}</h1>
<p class="status {state}"><span id="state">{escape(session.status.capitalize())}</span>
<span class="soft">· {_clock(session.begun)} to {_clock(now)}, {_duration(now - session.begun)}
<span id="age"></span></span></p>
{body}
<footer class="soft">All charts are over the steps; their numbers are in trace.csv, beside this page.</footer>
<script>{script}</script>
</body>
</html>
"""


def _short(session: Session) -> str:
    """What stands in the browser's tab."""
    judged = [watched.verdict for watched in session.watched if watched.verdict is not None]
    return ", ".join(dict.fromkeys(verdict.state.capitalize() for verdict in judged)) or "Watching"


def _section(watched: Watched) -> str:
    known = watched.planned.known
    length = (
        f" of {known.steps} ({escape(known.source)})" if known is not None else "; the length of the run is not known"
    )
    state = State.UNKNOWN if watched.verdict is None else watched.verdict.state
    kind = state.replace(" ", "-")
    changes = "".join(
        f"<tr><td>{step}</td><td>{escape(str(verdict))}</td></tr>" for step, verdict in watched.changes[-12:]
    )
    table = f"<table><thead><tr><th>step</th><th>verdict</th></tr></thead><tbody>{changes}</tbody></table>"
    earlier = (
        f"<details><summary>How the verdict has changed</summary>{table}</details>" if len(watched.changes) > 1 else ""
    )
    lost = watched.curves["batch loss"].bad
    bad = f" The loss was not finite at {lost} steps." if lost else ""
    horizon = None if known is None else known.steps
    figures = "".join(chart(title, curve, horizon) for title, curve in watched.curves.items())
    return f"""<section>
<h2>{escape(watched.name)} <span class="soft">{number(watched.parameters)} parameters</span></h2>
<p class="verdict {kind}">{escape(last_word(watched))}</p>
<p class="soft">Step {watched.steps}{length}.{bad}</p>
<div class="charts">{figures}</div>
{earlier}
</section>
"""


def _clock(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
