"""Edit the text of a network file: add the boxes and outputs of a query, or take them out.

The text is composed into nodes, changed and serialized again. Scalars stay as they are written, quoted or plain, and
``${VAR}`` stays a variable. Comments are lost, so the result is for the daemon and not for the file on disk.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import yaml

from catalog.config.document import REFERENCE
from catalog.errors import AuroraError, NetworkError, Problem

SECTIONS = ("boxes", "outputs")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes a tenth of the time
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class EntryExistsError(AuroraError):
    """A box or an output of this name exists, and is another one."""


def add_entries(text: str, query: str) -> tuple[str, list[str]]:
    """Return a network file with the boxes and outputs of a query, and the names of the query's outputs.

    An entry that is there already, and is the same, stays. Raises EntryExistsError when it is another one, and
    NetworkError when the query is not made of boxes and outputs.
    """
    variables: dict[str, str] = {}
    document, added = _compose(text, variables), _compose(query, variables)
    sections = _entries(added)
    if not sections or not set(sections) <= set(SECTIONS) or "outputs" not in sections:
        raise NetworkError([Problem((), "a query has boxes and outputs, and nothing else", line=1, column=1)], "query")
    for section, node in sections.items():
        known = _entries(_section(document, section))
        for name, entry in _entries(node).items():
            if name not in known:
                _section(document, section).value.append((yaml.ScalarNode("tag:yaml.org,2002:str", name), entry))
            elif yaml.serialize(known[name]) != yaml.serialize(entry):
                raise EntryExistsError(f"{section} has another '{name}' already")
    return _serialize(document, variables), list(_entries(sections["outputs"]))


def remove_entries(text: str, boxes: Collection[str], outputs: Collection[str]) -> str:
    """Return a network file without these boxes and outputs."""
    variables: dict[str, str] = {}
    document = _compose(text, variables)
    for section, names in (("boxes", boxes), ("outputs", outputs)):
        node = _section(document, section)
        node.value = [(key, value) for key, value in node.value if key.value not in names]
    return _serialize(document, variables)


def _compose(text: str, variables: dict[str, str]) -> Any:
    """Return the root of a text: a mapping. Raises NetworkError.

    A word stands for each ``${VAR}``, because YAML takes its braces for structure; ``variables`` gets the words.
    """

    def word(found: re.Match[str]) -> str:
        name = f"aurorad-variable-{found[0].encode().hex()}-"
        variables[name] = found[0]
        return name

    try:
        node = yaml.compose(REFERENCE.sub(word, text), Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        problem = Problem((), str(getattr(error, "problem", error)), line=line, column=1)
        raise NetworkError([problem], "query", text) from error
    if not isinstance(node, yaml.MappingNode):
        raise NetworkError([Problem((), "must be a mapping with boxes and outputs", line=1, column=1)], "query", text)
    return node


def _entries(node: Any) -> dict[str, Any]:
    return {key.value: value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _section(document: Any, section: str) -> Any:
    """Return the mapping of a section; an empty one is put there if it is missing."""
    found = _entries(document).get(section)
    if not isinstance(found, yaml.MappingNode):
        found = yaml.MappingNode("tag:yaml.org,2002:map", [])
        kept = [(key, value) for key, value in document.value if key.value != section]
        document.value = [*kept, (yaml.ScalarNode("tag:yaml.org,2002:str", section), found)]
    return found


def _serialize(document: Any, variables: Mapping[str, str]) -> str:
    text: str = yaml.serialize(document, Dumper=_Dumper, allow_unicode=True, width=10_000)
    for word, variable in variables.items():
        text = text.replace(word, variable)
    return text
