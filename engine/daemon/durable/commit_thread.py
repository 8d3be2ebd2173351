"""When a group is committed: the thread that calls ``Committer.step``.

A group is due when two milliseconds have passed since the last one or 1 MiB has come, whichever is first. It is due at
once where the last group had hardly anything in it: a client that waits for each acknowledgement before it sends on
waits for its own sync only, and many clients share one sync.

On a full disk the thread looks for room ten times a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Event, Thread
from time import monotonic

from engine.daemon.durable.committer import GROUP_BYTES, Committer
from storage.files import StorageError

log = logging.getLogger("aurorad.log")

GROUP_SECONDS = 0.002
ALONE_ITEMS = 2
"""A group of at most this many items came alone: the next one need not wait for company."""
MARK_AFTER_SECONDS = 0.05
RETRY_SECONDS = 0.1


class CommitThread:
    """Calls ``Committer.step`` when it is time."""

    def __init__(self, committer: Committer, on_failure: Callable[[Exception], None]) -> None:
        self._committer = committer
        self._on_failure = on_failure
        self._wake = Condition()
        self._asleep = False
        self._end = Event()
        self._thread = Thread(target=self._run, name="aurorad-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Commit what was submitted before, if that can be, and end."""
        with self._wake:
            self._end.set()
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Wake the thread if it waits for work: waking costs as much as a small group. Any thread."""
        if self._asleep or self._committer.pending_bytes >= GROUP_BYTES:
            with self._wake:
                self._asleep = False
                self._wake.notify()

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # noqa: BLE001
            self._on_failure(error)  # tuples wait that nothing will admit

    def _loop(self) -> None:
        committer = self._committer
        last = 0.0
        while self._wait_for_work():
            self._wait_for_company(last)
            if not committer.step() and committer.is_waiting:
                if self._end.is_set():
                    return
                with self._wake:
                    self._wake.wait(RETRY_SECONDS)
                committer.look_for_room()
            last = monotonic()

    def _wait_for_work(self) -> bool:
        """Return True when there is something to commit, False when the thread is to end and nothing is left."""
        committer = self._committer
        marked = False
        while not committer.has_work():
            if self._end.is_set():
                self._mark()
                return False
            with self._wake:
                self._asleep = True
                if not (committer.has_work() or self._end.is_set()):
                    self._wake.wait(RETRY_SECONDS if committer.is_waiting else None if marked else MARK_AFTER_SECONDS)
                self._asleep = False
            if committer.is_waiting:
                committer.look_for_room()
            elif not marked and not committer.has_work():
                self._mark()
                marked = True
        return True

    def _mark(self) -> None:
        committer = self._committer
        with committer.gate:
            if committer.log.failed is None and not committer.refusal:
                try:
                    committer.log.mark()
                except StorageError as error:
                    log.warning("the log could not be marked: %s", error)

    def _wait_for_company(self, last: float) -> None:
        if self._committer.group_items <= ALONE_ITEMS:
            return
        with self._wake:
            while (left := last + GROUP_SECONDS - monotonic()) > 0:
                if self._committer.pending_bytes >= GROUP_BYTES or self._end.is_set():
                    return
                self._wake.wait(left)
