"""VPipe: see an application as one virtual line, and run Chain on the line (P2 section 3).

On the line every tuple passes by the boxes that it is not for. Selectivities and costs are therefore averages over all
tuples that pass (equation 1), and one lower envelope orders boxes of different branches and inputs. Among the boxes of
one segment the oldest tuple goes first: that keeps several inputs in the order of time, which is the purpose of the
line. `unit: vpipe` also executes the network as that line: tuples carry the bitmap of their arc, and a segment is one
run along the line.
"""

from __future__ import annotations

from scheduler.index import Index, Key, Ranking, ranking
from scheduler.plan import Plan
from scheduler.state import SchedulerState
from scheduler.traversal import segment_plan

WHEN = "as chain, where streams are joined or shared: inputs that wait for each other advance together"


def index(state: SchedulerState) -> Index:
    return Ranking(state, key)


def key(state: SchedulerState, box: int, now_ns: int) -> tuple[Key, int | None]:
    return (-state.facts.line_segment[box].slope, state.head_ns(box)), None


def vpipe(state: SchedulerState, now_ns: int) -> Plan | None:
    box = ranking(state).best()
    return None if box is None else segment_plan(state, box, state.facts.line_segment[box].boxes)
