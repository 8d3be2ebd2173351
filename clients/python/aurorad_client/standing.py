"""What the sync and the async sender have in common: what is known of the server's answers, and when to send again."""

from __future__ import annotations

from aurorad_client.events import BatchRefused
from aurorad_client.patience import REFUSED_PAUSE_SECONDS, AckDeadline
from aurorad_client.sender_protocol import SenderProtocol


class SenderStanding:
    """The public counts of a sender, and the pause after a refusal."""

    def __init__(self, protocol: SenderProtocol) -> None:
        self._protocol = protocol
        self._not_before_s = 0.0  # after a refusal: when to send again

    @property
    def acknowledged(self) -> int:
        """The number of the last batch that the server has."""
        return self._protocol.acknowledged

    @property
    def resumed_at(self) -> int:
        """The number of the last batch that the server had when this sender started."""
        return self._protocol.resumed_at or 0

    @property
    def rejected(self) -> int:
        """The number of rows that the server has refused since this sender started."""
        return self._protocol.rejected

    @property
    def refusal(self) -> str:
        """The reason why the server takes no batch now (its disk is full); empty when it does."""
        return self._protocol.refusal

    @property
    def epoch(self) -> int:
        """The epoch in which batches are numbered. It changes when a server without a disk restarts."""
        return self._protocol.epoch

    def _has_at_most(self, most: int | None) -> bool:
        """Tell whether at most this many batches are unacknowledged; None: any number is right."""
        return most is None or self._protocol.last - self._protocol.acknowledged <= most

    def _may_send(self, now_s: float) -> bool:
        return now_s >= self._not_before_s

    def _wait_s(self, progress: AckDeadline, now_s: float) -> float:
        """Return how long to wait for an answer: not beyond the time-out, nor the pause after a refusal."""
        left_s = progress.left_s(now_s)
        return min(left_s, self._not_before_s - now_s) if self._not_before_s > now_s else left_s

    def _take_events(self, now_s: float) -> None:
        while (event := self._protocol.next_event()) is not None:
            if isinstance(event, BatchRefused):
                self._not_before_s = now_s + REFUSED_PAUSE_SECONDS
