"""What a replay computes again against a plain multiset."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from catalog.schema import Schema
from engine.daemon.durable.regenerated import Regenerated
from storage.train import Train

SCHEMA = Schema.of(a="int", s="string?", v="double")
rows = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.sampled_from("xy"), st.sampled_from([0.5, 1.5])), max_size=9
)


def train_of(given: list[tuple[int, str | None, float]]) -> Train:
    columns = list(zip(*given, strict=True)) or [(), (), ()]
    return Train.from_pylists(SCHEMA, dict(zip(SCHEMA.names, map(list, columns), strict=True)), 7)


@given(st.lists(rows, max_size=4), st.lists(rows, max_size=6))
def test_each_tuple_is_taken_off_once(
    before: list[list[tuple[int, str | None, float]]], again: list[list[tuple[int, str | None, float]]]
) -> None:
    regenerated = Regenerated([train_of(r) for r in before])
    left = Counter(r for part in before for r in part)
    for part in again:
        expected = []
        for r in part:
            if left[r]:
                left[r] -= 1
            else:
                expected.append(r)
        assert Counter(regenerated.new(train_of(part)).to_rows()) == Counter(expected)
        assert regenerated.left == left.total()
