"""Make the scheduler's settings from the ``scheduler`` section of a network file, for daemon and simulator."""

from __future__ import annotations

from catalog.config.models import SchedulerSection
from scheduler.state import BatchRule, SchedulerSettings
from scheduler.trains import TrainRule


def scheduler_settings(section: SchedulerSection, seed: int = 0) -> SchedulerSettings:
    """Return the settings that a network file asks for."""
    batch = section.batch
    return SchedulerSettings(
        unit=section.unit,
        traversal=section.traversal,
        train=TrainRule(section.train.rule, section.train.amount),
        spanner=section.spanner,
        grid=section.grid,
        batch=BatchRule(
            basic_ns=batch.basic_ns,
            k=batch.k,
            proportional=batch.proportional,
            integral=batch.integral,
            interval_ns=batch.interval_ns,
            step_ns=batch.step_ns,
            window=batch.window,
            whole=batch.whole,
            overdue=batch.overdue,
            total=batch.total,
        ),
        window_worth=section.window_worth,
        tune=frozenset(section.tune),
        idle_fast_path=section.idle_fast_path,
        seed=seed,
    )
