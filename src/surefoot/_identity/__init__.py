"""What the numbers of user-written code depend on, as a hash: the one home of identity.

Problems, studies and searches remember runs under it. Code of yours counts by what it does: byte code, defaults,
closures, class attributes, and whatever it refers to, followed through your own modules. Packages count by name and
version. Comments, docstrings, names of locals, positions in the file and addresses in memory do not count.
"""

from __future__ import annotations

from surefoot._identity._identity import Identity, IdentityError, digest, identify, merged, require
from surefoot._identity._packages import is_foreign

__all__ = ["Identity", "IdentityError", "digest", "identify", "is_foreign", "merged", "require"]
