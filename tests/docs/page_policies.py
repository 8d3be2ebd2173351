"""docs/policies.md: every policy with its rule, its use, and the paper that it comes from."""

from __future__ import annotations

import sys

from scheduler.choice import AUTO, Choice
from scheduler.papers import PAPERS, source_of, source_text
from scheduler.policies import PolicyInfo, policy_infos
from tests.docs.prose import NOTE, docstring, prose, table

HEAD = """# Scheduling policies

A policy decides which boxes run next. It is set in the network file, or by `--policy`:

```yaml
scheduler: {policy: qos}
outputs: {alerts: {from: trades, qos: {deadline: 200ms}}}
```

`aurorad policies` prints this list, `aurorad policies NAME` one entry, and `aurorad simulate FILE --policy all`
compares the policies on a network before it is deployed. [papers.md](papers.md) says what P0 to P4 are and how the
formulas read. If you do not know which one to take: `auto` when the outputs have QoS graphs, `round_robin` when they
have none.
"""


def page() -> str:
    infos = list(policy_infos().values())
    rows = [[f"[`{AUTO}`](#{AUTO})", "chooses among the others while the engine runs", "", "ours"]]
    rows += [[f"[`{i.name}`](#{i.name})", i.when, " and ".join(i.needs), source_of(i)] for i in infos]
    parts = [NOTE + HEAD.strip(), table(["policy", "use it for", "needs", "source"], rows)]
    parts.append(f"## {AUTO}\n\n{prose((sys.modules[Choice.__module__].__doc__ or '').strip())}")
    parts += [section(info) for info in infos]
    return "\n\n".join(parts) + "\n"


def section(info: PolicyInfo) -> str:
    module = sys.modules[info.decide.__module__]
    first = prose((module.__doc__ or "").strip().split("\n\n", 1)[0])
    rest = docstring(module, "text") if "\n\n" in (module.__doc__ or "").strip() else ""
    said = [f"## {info.name}", first, rest, f"Use it for: {info.when}."]
    if info.needs:
        said.append(
            f"It needs {' and '.join(info.needs)} in the network. Without them, `{info.instead}` is the nearest."
        )
    source = source_text(info) + (" in [papers.md](papers.md)" if source_of(info) in PAPERS else "")
    said.append(f"Source: {source}. Code: `{module.__name__.replace('.', '/')}.py`.")
    return "\n\n".join(part for part in said if part)
