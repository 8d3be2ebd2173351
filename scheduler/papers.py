"""Where a policy comes from: a paper of ``docs/papers.md``, a baseline, or this project."""

from __future__ import annotations

import re
import sys

from scheduler.policies import PolicyInfo

PAPERS = {
    "P0": "Aurora, operator scheduling (VLDB 2003)",
    "P1": "heterogeneous continuous queries (VLDB 2006)",
    "P2": "VPipe",
    "P3": "Aurora, trains and priorities",
    "P4": "deadlines in batches",
}
OTHERS = {"baseline": "a baseline", "ours": "this project"}


def source_of(info: PolicyInfo) -> str:
    """Return the paper that the policy's docstring names, ``baseline`` if it says that, else ``ours``."""
    text = sys.modules[info.decide.__module__].__doc__ or ""
    found = re.search(r"\bP([0-4])\b", text)
    return f"P{found[1]}" if found else "baseline" if re.search(r"\bbaseline\b", text) else "ours"


def source_text(info: PolicyInfo) -> str:
    """Return the source in words."""
    found = source_of(info)
    return f"{PAPERS[found]}, {found}" if found in PAPERS else OTHERS[found]
