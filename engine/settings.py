"""The scheduler section of a network file as the scheduler's own settings: for the daemon and the simulator alike."""

from __future__ import annotations

from catalog.config.models import SchedulerSection
from scheduler.state import BatchRule, SchedulerSettings
from scheduler.trains import TrainRule


def scheduler_settings(section: SchedulerSection, seed: int = 0) -> SchedulerSettings:
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
        ),
        seed=seed,
    )
