"""How things are drawn: one look per method (:mod:`.methods`), numbers and ticks (:mod:`.numbers`), axes and legends
(:mod:`.style`), and what pages share (:mod:`.pages`).

>>> look("log-ngn").label
'LogNGN'
"""

from surefoot.plots.methods import Look, label_of, look, looks
from surefoot.plots.numbers import plain, short, span, ticks

__all__ = ["Look", "label_of", "look", "looks", "plain", "short", "span", "ticks"]
