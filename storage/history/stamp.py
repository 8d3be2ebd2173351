"""Watermarks for history that was kept where nothing needed them.

The trains of a stream by arrival have no watermark while no box behind it uses time. A query that is asked later may
use it. Then each train gets the watermark that the clock of the stream would have given it: the newest time, minus the
slack.
"""

from __future__ import annotations

from catalog.network import KeptPlace
from storage.train import NO_WATERMARK, Train


class WatermarkStamp:
    """One reader's, for the trains of one place in their order."""

    def __init__(self, place: KeptPlace) -> None:
        self._column = None if place.time_field is None else place.schema.index(place.time_field)
        self._slack_ns = place.slack_ns
        self._newest_ns = NO_WATERMARK

    def stamp(self, train: Train) -> Train:
        """Return the train with a watermark, if it has tuples and no watermark."""
        if train.watermark_ns != NO_WATERMARK or not train.count:
            return train
        times = train.arrival_ns if self._column is None else train.columns[self._column]
        self._newest_ns = max(self._newest_ns, int(times[0] if times.strides[0] == 0 else times.max()))
        return train.with_watermark(self._newest_ns - self._slack_ns)
