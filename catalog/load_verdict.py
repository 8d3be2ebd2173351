"""The load verdict: how much work the streams demand, how much the engine can do, and which outputs suffer.

Plain data, in the catalog because two packages that never import each other share it: ``qos_monitor/verdict`` computes
a verdict on every tick, and ``load_shedder`` decides by it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

LoadState = Literal["fine", "close", "overloaded"]

FIRST_GUESS = 0.8
"""Capacity as a share of the workers' time, before anything was measured."""


class LevelLoad(NamedTuple):
    """The load of one level of urgency (``qos_monitor/levels``). Work is in ns per second, what waits in ns."""

    boxes: tuple[bool, ...]  # by box: whether its work belongs to the level
    load_ns: float = 0.0
    backlog_ns: float = 0.0
    may_wait_ns: float = 0.0  # the backlog that harms no output of the level
    excess_ns: float = 0.0  # work beyond what may be planned for; below 0: room
    catch_up_ns: float = 0.0  # the part of it that brings the backlog back to what may wait
    slack_s: float = 0.0  # how long an overload as large as the capacity would fit into the backlog that may wait
    is_pressed: bool = False  # the backlog does not fit: tuples of the level must be shed


class LoadVerdict(NamedTuple):
    """The verdict of one tick. Work is in ns per second."""

    at_ns: int = 0
    state: LoadState = "fine"
    load_ns: float = 0.0  # work demanded, as if nothing were shed
    capacity_ns: float = 0.0  # work that can be done for it
    load_ratio: float = 0.0  # load over capacity, of the fullest resource: all workers, or the one of a bound unit
    trend_per_s: float = 0.0  # of the ratio
    backlog_ns: float = 0.0  # ns of work that wait
    wait_ns: float = 0.0  # how long the backlog will wait, at this capacity
    excess_ns: float = 0.0  # work beyond what may be planned for; below 0: room
    catch_up_ns: float = 0.0  # the part of the excess that works off the backlog, and ends with it
    headroom_ratio: float = FIRST_GUESS  # learned: capacity over the workers' time
    busy: float = 1.0  # share of the workers' time that was used, smoothed
    others_ns: float = 0.0  # work done for streams that can wait
    suffering: tuple[int, ...] = ()  # outputs below the utility that their graphs allow
    trim: float = 0.0  # share of capacity that may be planned for, on top of the headroom
    rates: tuple[float, ...] = ()  # tuples per second by stream, smoothed: up fast, down slowly
    rates_now: tuple[float, ...] = ()  # the same, down as fast as up
    tuple_ns: tuple[float, ...] = ()  # by stream: the work of one tuple, smoothed
    priced_ns: float = 0.0  # the work done, by the coefficients
    worked_ns: float = 0.0  # and by the clock
    priced_ticks: int = 0  # ticks in which anything was done
    unit_ns: tuple[float, ...] = ()  # by unit (``qos_monitor/unit_load``): work demanded of it; empty: one worker
    unit_busy: tuple[float, ...] = ()  # by unit: the share of one worker's time that it used
    unit_late_ns: tuple[float, ...] = ()  # by unit: work that waits before it, beyond what its outputs can bear
    unit_bound: tuple[bool, ...] = ()  # by unit: whether it is full, so that no drop elsewhere helps it
    unit_stalled: tuple[float, ...] = ()  # by unit: share of the last ticks in which it waited while workers were idle
    unit_limits_ns: tuple[float, ...] = ()  # by unit: the work that it gets done at most
    unit_limit_ns: float = 0.0  # the work that one worker can do
    levels: tuple[LevelLoad, ...] = ()  # from the most urgent to the last, which has all work
    late: tuple[int, ...] = ()  # outputs whose results of this tick came later than their graphs like
