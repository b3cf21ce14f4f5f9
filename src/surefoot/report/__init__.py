"""The report: one self-contained HTML page that answers which learning rates hold.

The page opens from disk in any browser and asks the network for nothing. A study in
a file needs :func:`from_store`, a result at hand ``result.report(path)``, several results :func:`write_many`.
"""

from surefoot.report._payload import prepare
from surefoot.report._write import from_store, write, write_many

__all__ = ["from_store", "prepare", "write", "write_many"]
