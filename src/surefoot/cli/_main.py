"""The whole command. Its parts import what they need when they run, so that ``surefoot --help`` is quick."""

from surefoot.cli import _own, _forecast, _store, _paper, _data, _doctor  # noqa: F401, I001 - the order of the help
from surefoot.cli._app import Handover, app

__all__ = ["Handover", "app"]
