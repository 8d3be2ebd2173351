"""Time limits for calls into code of users: a function that does not return must not take a worker with it.

A box that calls such code does so by ``CallLimits.call``, which runs the function on the calling thread, so that a call
costs no change of threads (about 2 us instead of 60). A watching thread looks after the calls:

1. At its deadline a call is interrupted: CPython raises ``CallInterruptedError`` in its thread, between two steps of
   Python code. That ends every loop in Python. It is raised again every tenth of a second, because a bare ``except:``
   may swallow it. ``call`` then raises CallTimedOutError.
2. A call that waits in C code (a socket, a lock, ``time.sleep``) does not come back to Python, so nothing can be raised
   in it. Half a second after its deadline it is given up: its thread is left to itself, and the owner of the thread
   (``engine/run/worker.py``) starts another one. Should the call return after all, ``call`` raises CallAbandonedError,
   and the thread ends without touching anything.

Refused: a thread or a process for each call (a change of threads for each train), signals (only the main thread gets
them). Not covered: C code that never returns and keeps the GIL. Then no thread of the process runs any more.

Threads: ``call`` on any worker; the watching thread; the lock guards the table of calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from threading import Condition, Thread, get_ident
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_SECONDS = 0.1
GRACE_SECONDS = 0.5

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = [ctypes.c_ulong, ctypes.py_object]
_forget_raised = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class CallInterruptedError(BaseException):
    """Raised inside a function that has used up its time. ``except Exception`` lets it pass."""


class CallAbandonedError(BaseException):
    """Raised by ``call`` in a thread that was replaced: the thread ends and touches nothing."""


class CallTimedOutError(Exception):
    """The function did not return in time."""


class LimitedCall:
    """One call under way. Guarded by the lock of ``CallLimits``."""

    __slots__ = ("deadline", "give_up", "is_abandoned", "is_interrupted", "thread")

    def __init__(self, thread: int, deadline: float, give_up: Callable[[], None] | None) -> None:
        self.thread = thread
        self.deadline = deadline  # on the monotonic clock
        self.give_up = give_up  # replaces the thread; None: the thread cannot be replaced
        self.is_interrupted = False
        self.is_abandoned = False


class CallLimits:
    """The owner of the workers calls ``start`` and ``stop``, and registers each thread that it can replace."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._calls: dict[int, LimitedCall] = {}  # by thread
        self._replacements: dict[int, Callable[[], None]] = {}  # by thread
        self._is_asleep = False
        self._is_stopped = False
        self._thread = Thread(target=self._watch, name="aurorad-call-limits", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def hurry(self) -> None:
        """Give every call under way no more time: the engine stops. Any thread."""
        with self._changed:
            for call in self._calls.values():
                call.deadline = min(call.deadline, monotonic())
            self._changed.notify()

    def register(self, give_up: Callable[[], None]) -> None:
        """Let ``give_up`` replace this thread when a call on it is given up. It is called on the watching thread."""
        with self._changed:
            self._replacements[get_ident()] = give_up

    def forget_thread(self) -> None:
        """Forget this thread, which ends."""
        with self._changed:
            self._replacements.pop(get_ident(), None)
            self._calls.pop(get_ident(), None)

    # -- a call: on the thread that calls -----------------------------------------------------------------------------

    def deadline(self, after_ns: int) -> float:
        """Return the time on the monotonic clock ``after_ns`` from now."""
        return monotonic() + after_ns / 1e9

    def is_past(self, deadline: float) -> bool:
        return monotonic() >= deadline

    def call(self, deadline: float, function: Callable[..., T], *arguments: object) -> T:
        """Call a function. CallTimedOutError when it has not returned by ``deadline``, on the monotonic clock."""
        call = self._begin(deadline)
        try:
            try:
                return function(*arguments)
            finally:
                self._end(call)
        except CallInterruptedError:
            self._end_interrupted(call)
            raise CallTimedOutError("the function did not return in time") from None

    def _begin(self, deadline: float) -> LimitedCall:
        thread = get_ident()
        with self._changed:
            call = self._calls[thread] = LimitedCall(thread, deadline, self._replacements.get(thread))
            if self._is_asleep:
                self._is_asleep = False
                self._changed.notify()
        return call

    def _end(self, call: LimitedCall) -> None:
        with self._changed:
            if self._calls.get(call.thread) is call:
                del self._calls[call.thread]
            if call.is_interrupted:
                _forget_raised(call.thread, None)  # one that was raised and not delivered yet
        if call.is_abandoned:
            raise CallAbandonedError

    def _end_interrupted(self, call: LimitedCall) -> None:
        """End a call although another interruption may be delivered at any step, until it is out of the table."""
        while True:
            try:
                return self._end(call)
            except CallInterruptedError:
                continue

    # -- the watching thread ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._is_stopped:
                    return
                self._is_asleep = not self._calls
                self._changed.wait(None if self._is_asleep else LOOK_EVERY_SECONDS)
                given_up = self._look(monotonic())
            for give_up in given_up:
                give_up()  # without the lock: it starts a thread

    def _look(self, now: float) -> list[Callable[[], None]]:
        """Interrupt the calls that are out of time; return how to replace the threads of those that do not react."""
        given_up: list[Callable[[], None]] = []
        for thread, call in list(self._calls.items()):
            if now < call.deadline:
                continue
            call.is_interrupted = True
            _raise_in_thread(thread, CallInterruptedError)
            if call.give_up is not None and now >= call.deadline + GRACE_SECONDS:
                call.is_abandoned = True  # from here on the thread ends as soon as the call returns
                del self._calls[thread]
                self._replacements.pop(thread, None)
                given_up.append(call.give_up)
        return given_up
