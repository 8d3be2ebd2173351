"""YAML as plain data with places: YAML 1.2's words, limits, variables, and text that is not YAML at all."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from catalog.config.document import MAX_BYTES, Document, read_document
from catalog.errors import NetworkError, Problem

ENV = {"NAME": "aurora", "PORT": "9401", "EMPTY": "", "EVIL": "1\nb: 2"}


def read(text: str) -> Document:
    return read_document(text, "net.yaml", ENV)


def refused(text: str) -> Problem:
    with pytest.raises(NetworkError) as caught:
        read(text)
    return caught.value.problems[-1]


WORDS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cn", "Cs")), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | WORDS
KEYS = WORDS.filter(lambda k: k != "<<" and "${" not in k)  # a variable in a key is not replaced
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(TREES, st.booleans())
def test_what_pyyaml_writes_is_read_back(tree: Any, flow: bool) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True)
    assert read_document(text.replace("${", "$${"), "", {}).data == tree


@given(st.floats(allow_nan=False))
def test_floats(number: float) -> None:
    assert read(yaml.safe_dump([number])).data == [number]


def problems_of(text: str) -> list[Problem]:
    """Any exception but a NetworkError is a bug."""
    try:
        return read(text).problems
    except NetworkError as error:
        return list(error.problems)


@given(st.text(max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    assert all(p.message and p.line >= 1 and p.column >= 1 for p in problems_of(text))


@given(st.text(alphabet="a:-[]{}&*!|>'\"%@`#\n\t ,?$<", max_size=60))
def test_no_punctuation_is_too_strange(text: str) -> None:
    assert all(p.message and p.line >= 1 and p.column >= 1 for p in problems_of(text))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("yes", "yes"),
        ("off", "off"),
        ("N", "N"),
        ("true", True),
        ("~", None),
        ("1:30", "1:30"),
        ("010", 10),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("2001-12-14", "2001-12-14"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("'5'", "5"),
        ("=", "="),
        ("127.0.0.1:9401", "127.0.0.1:9401"),
    ],
)
def test_words_mean_what_yaml_1_2_says(text: str, value: Any) -> None:
    found = read(f"key: {text}").data["key"]
    assert found == value
    assert type(found) is type(value)


def test_nan_and_infinity() -> None:
    data = read("[.nan, .inf, -.inf]").data
    assert math.isnan(data[0])
    assert data[1:] == [math.inf, -math.inf]


def test_the_key_on_is_a_word() -> None:
    assert read("{join: [a, b], on: 'l.x = r.x', no: 1}").data == {"join": ["a", "b"], "on": "l.x = r.x", "no": 1}


def test_places_count_from_one() -> None:
    document = read("a: 1\nb:\n  c: [10, 20]\n")
    assert (document.keys["b", "c"].line, document.keys["b", "c"].column) == (3, 3)
    assert (document.values["b", "c", 1].line, document.values["b", "c", 1].column) == (3, 11)


def test_a_problem_inside_a_text_points_into_it() -> None:
    quoted = read('where: "price > sise"').problem(("where",), "no", offset=8)
    plain = read("where: price > sise").problem(("where",), "no", offset=8)
    assert (quoted.column, plain.column) == (17, 16)
    escaped = read('where: "a\\tb > sise"').problem(("where",), "no", offset=6)
    assert escaped.column == 8, "an escape shifts the text, so only its beginning is sure"
    folded = read("where: >\n  price\n  > sise\n").problem(("where",), "no", offset=8)
    assert (folded.line, folded.column) == (1, 8)


def test_a_missing_key_is_placed_at_its_parent() -> None:
    document = read("streams:\n  trades: {time: ts}\n")
    assert document.problem(("streams", "trades", "schema"), "missing").line == 2


def test_a_key_twice_is_an_error_and_the_first_stands() -> None:
    document = read("a: 1\nb: 2\na: {c: 3}\n")
    assert document.data == {"a": 1, "b": 2}
    [problem] = document.problems
    assert (problem.path, problem.line) == (("a",), 3)
    assert "line 1" in problem.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${NAME}", "aurora"),
        ("x-${NAME}-y", "x-aurora-y"),
        ("${PORT}", 9401),
        ('"${PORT}"', "9401"),
        ("${NONE:-7}", 7),
        ("${NONE:-}", None),
        ("${EMPTY:-full}", "full"),
        ("'${EMPTY}'", ""),
        ("$${NAME}", "${NAME}"),
        ("${NAME}${PORT}", "aurora9401"),
        ("'a$ {b} $c'", "a$ {b} $c"),
        ("${EVIL}", "1\nb: 2"),
    ],
)
def test_variables(text: str, value: Any) -> None:
    document = read(f"key: {text}")
    assert document.data == {"key": value}
    assert not document.problems


@pytest.mark.parametrize(
    ("text", "message"),
    [("${NONE}", "NONE is not set"), ("'${1x}'", "name is not valid"), ("'${NAME'", "is not closed")],
)
def test_variables_that_cannot_be_replaced(text: str, message: str) -> None:
    document = read(f"a: 1\nkey: {text}")
    [problem] = document.problems
    assert message in problem.message
    assert (problem.path, problem.line, problem.column) == (("key",), 2, 6)


def test_aliases_and_merges() -> None:
    document = read("base: &b {x: 1, y: 2}\nsame: *b\nmore: {<<: *b, y: 3}\nboth: {<<: [*b, {z: 4}]}\n")
    assert document.data["same"] == {"x": 1, "y": 2}
    assert document.data["more"] == {"x": 1, "y": 3}
    assert document.data["both"] == {"x": 1, "y": 2, "z": 4}
    assert document.values["same", "x"].line == 1
    assert document.locate(("more", "x")).line == 3
    assert "mapping" in read("a: {<<: 5}").problems[0].message


def test_an_alias_bomb_is_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert "aliases expand" in refused("\n".join(lines)).message


def test_an_alias_of_itself_is_stopped() -> None:
    assert "contains itself" in refused("a: &a [1, *a]").message
    assert "not defined" in refused("a: *b").message


def test_depth_is_limited() -> None:
    assert "deeper" in refused("[" * 500).message
    assert refused("[" * 100_000).line == 1
    assert refused("a: " + "{a: " * 500).line == 1


def test_size_is_limited() -> None:
    assert "larger" in refused("#" * (MAX_BYTES + 1)).message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a:\n\tb: 1\n", 2, "spaces"),
        ("a: b: c\n", 1, "quote"),
        ("a: 1\nb: @x\n", 2, "quote"),
        ("a: [1, 2\n", 2, ""),
        ("a: 1\n--- \nb: 2\n", 2, ""),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "quote"),
        ("? [a, b]\n: 1\n", 1, ""),
        ("a: 'x\n", 2, ""),
        ("ok: 1\nbad: \x07\n", 2, ""),
    ],
)
def test_what_is_not_our_yaml(text: str, line: int, words: str) -> None:
    problem = refused(text)
    assert problem.line == line
    assert words in problem.hint


def test_a_file_of_rows_is_told_from_a_network() -> None:
    assert "aurorad new" in refused('{"a": 1}\n{"a": 2}\n').hint
