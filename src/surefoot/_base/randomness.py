"""The global random numbers of torch, NumPy and Python, which threads of a process share."""

from __future__ import annotations

import threading

global_random = threading.RLock()
"""Held by whoever seeds or sets the global generators, as long as others must not draw from them.

Two studies of networks in two threads take turns: each run draws its own numbers.
"""
