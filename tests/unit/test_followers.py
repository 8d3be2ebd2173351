"""The table of a plan's sequence: where each box's output goes, for workers and for the simulator."""

from __future__ import annotations

from engine.run.followers import Followers, sequence_steps
from engine.simulate.sketch import NetworkSketch


def forked() -> NetworkSketch:
    """s >0 b0 >1 b1 >2 b2 >4 out0, and b0 >3 b3 >5 out1: the arcs by their numbers."""
    sketch = NetworkSketch()
    root = sketch.box(sketch.stream())
    sketch.output(sketch.chain(root, 2))
    sketch.output(sketch.box(root))
    return sketch


def test_an_arc_is_handed_on_queued_or_delivered() -> None:
    first, second = sequence_steps(forked().network(), (0, 1))
    assert (first.box, first.in_arcs, first.ports) == (0, (0,), (Followers((1,), (3,), ()),))
    assert second.ports == (Followers((), (2,), ()),)
    assert sequence_steps(forked().network(), (3,))[0].ports == (Followers((), (), (5,)),)


def test_only_a_later_step_is_handed_trains() -> None:
    after, before = sequence_steps(forked().network(), (1, 0))
    assert before.ports[0].queued == (1, 3)
    assert after.ports[0].queued == (2,)


def test_a_chain_is_where_one_arc_leads_out_and_in() -> None:
    network = forked().network()
    assert [s.is_chained for s in sequence_steps(network, (1, 2))] == [True, False]
    assert [s.is_chained for s in sequence_steps(network, (0, 1, 2))] == [False, True, False]  # b0 also feeds b3
    assert [s.is_chained for s in sequence_steps(network, (2, 1))] == [False, False]


def test_a_box_that_runs_twice_is_in_no_chain() -> None:
    """It meets its queue between the two."""
    steps = sequence_steps(forked().network(), (2, 1, 2))
    assert [s.is_chained for s in steps] == [False, False, False]
    assert steps[1].ports == (Followers((2,), (), ()),)


def test_arcs_can_be_left_out() -> None:
    assert Followers((1, 2), (3,), (4,)).without({2, 4}) == Followers((1,), (3,), ())
