"""The version, in one place: the build, the command and the store read it here."""

__version__ = "0.2.0"
