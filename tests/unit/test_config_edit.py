"""The text of a network file gets and loses queries; everything else stays as it was written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from catalog.config.edit import EDITED, EntryExistsError, add_entries, merge_entries, remove_entries
from catalog.errors import NetworkError
from engine.run.network_file import read_network

TEXT = """
# a comment
engine: {workers: ${WORKERS:-3}}
streams:
  a: {schema: {k: string, n: int}, overload: block}
  b: {schema: {k: string, n: int}, overload: block}
boxes:
  pairs: {join: [a, b], on: "l.k = r.k", within: 1s, select: {k: l.k, "n": "l.n"}}
  yes: {filter: pairs, where: 'n > 010 AND k <> ''no'''}
outputs:
  out: {from: yes}
"""
QUERY = """
boxes: {more: {filter: a, where: "n > ${LEAST:-5}"}}
outputs: {extra: {from: more}}
"""


def test_a_query_is_added_and_the_rest_stays() -> None:
    text, names = add_entries(TEXT, QUERY)
    assert names == ["extra"] and "${WORKERS:-3}" in text and "${LEAST:-5}" in text
    was, now = read_network(TEXT, {}), read_network(text, {"LEAST": "7"})
    assert now.config.engine == was.config.engine and now.config.streams == was.config.streams
    assert now.box("pairs").box.parameters == was.box("pairs").box.parameters
    assert now.box("yes").box.parameters == was.box("yes").box.parameters
    assert now.box("more").box.parameters.where == "n > 7"


def test_adding_twice_adds_once_and_another_definition_is_refused() -> None:
    once, _ = add_entries(TEXT, QUERY)
    assert add_entries(once, QUERY)[0] == once
    with pytest.raises(EntryExistsError, match="more"):
        add_entries(once, QUERY.replace("LEAST:-5", "LEAST:-6"))


def test_a_removed_query_leaves_the_file_as_it_was() -> None:
    once, _ = add_entries(TEXT, QUERY)
    back = read_network(remove_entries(once, ["more"], ["extra"]), {})
    assert back.config == read_network(TEXT, {}).config


def test_sections_that_are_missing_are_made() -> None:
    text, _ = add_entries("streams: {a: {schema: {n: int}, overload: block}}\n", "outputs: {o: {from: a}}\n")
    assert read_network(text, {}).output("o").name == "o"


@pytest.mark.parametrize(
    "query", ["", "[1]", "boxes: {}", "streams: {s: {}}\noutputs: {}", "outputs: {a: {", "- a\n- b"]
)
def test_what_is_no_query_is_refused(query: str) -> None:
    with pytest.raises(NetworkError):
        add_entries(TEXT, query)


def test_two_files_become_one() -> None:
    streams, outputs = "streams: {z: {schema: {k: string}, overload: block}}", "outputs: {zs: {from: z}}"
    draft = f"# a draft\nhttp: {{listen: off}}\n{streams}\n{outputs}\n"
    merged = merge_entries(TEXT, draft)
    was, now = read_network(TEXT, {}), read_network(merged, {})
    assert [s.name for s in now.streams] == [*(s.name for s in was.streams), "z"] and now.output("zs").name == "zs"
    assert now.config.http == was.config.http, "only streams, boxes and outputs are taken"
    assert merge_entries(merged, draft) == merged
    with pytest.raises(EntryExistsError, match="another 'z'"):
        merge_entries(merged, draft.replace("string", "int"))
    settings = "http: {listen: 127.0.0.1:9999}\nstreams: {}\noutputs: {}\n"
    assert read_network(merge_entries(settings, draft), {}).config.http.listen.port == 9999, "settings stay"
    empty = merge_entries("streams: {}\noutputs: {}\n", draft)
    assert [s.name for s in read_network(empty, {}).streams] == ["z"]


def loaded(text: str) -> Any:
    return yaml.safe_load(text.replace("${WORKERS:-3}", "3"))


def test_the_second_edit_moves_lines_and_means_the_same() -> None:
    edited, _ = add_entries(TEXT, QUERY)
    quick, slow = edited, edited.removeprefix(EDITED)
    for step in range(4):
        box = f'{{filter: a, where: "n > ${{LEAST:-{step}}}"}}'
        query = f"boxes: {{x{step}: {box}}}\noutputs: {{y{step}: {{from: x{step}}}}}\n"
        quick, names = add_entries(quick, query)
        slow = add_entries(slow, query)[0].removeprefix(EDITED)
        assert names == [f"y{step}"] and loaded(quick) == loaded(slow)
        assert add_entries(quick, query)[0] == quick
    with pytest.raises(EntryExistsError):
        add_entries(quick, 'boxes: {x1: {filter: a, where: "n > 9"}}\noutputs: {y1: {from: x1}}\n')
    quick, slow = (remove_entries(text, ["x1", "more", "none"], ["y1", "extra"]) for text in (quick, slow))
    assert loaded(quick) == loaded(slow) and "x2" in quick and "x1" not in quick
    assert read_network(quick, {}).box("x3").kind == "filter"


def test_names_in_quotes_and_aliases_take_the_slow_way() -> None:
    odd = EDITED + TEXT.replace("  yes: {", "  'yes': {")
    assert list(loaded(remove_entries(odd, ["pairs"], []))["boxes"]) == ["yes"]
