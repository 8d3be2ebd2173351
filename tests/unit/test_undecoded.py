"""The common account of undecoded bytes: who is read while it is full, and who has to go."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from router.undecoded import LOW_WATER, STALLED_AT_MOST_S, UndecodedBytes, undecoded_limit

MIB = 2**20


class Sender:
    """A connection, as the account sees it."""

    def __init__(self, stream_key: str) -> None:
        self.stream_key = stream_key
        self.waits = False
        self.is_stalled = False
        self.told = ""

    def set_waits_for_room(self, waits: bool) -> None:
        self.waits = waits

    def give_up(self, why: str) -> None:
        self.told = why


class Clock:
    """Time that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.calls: list[Callable[[], None]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def second(self) -> None:
        self.now_s += 1.0
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def account(limit_bytes: int = 100) -> tuple[UndecodedBytes, Clock]:
    clock = Clock()
    return UndecodedBytes(limit_bytes, clock.later, lambda: clock.now_s), clock


def test_the_first_of_each_stream_is_read_on_until_its_message_is_whole() -> None:
    bytes_, _ = account()
    first, second, third, other = Sender("a"), Sender("a"), Sender("a"), Sender("b")
    bytes_.note(first, 40)
    bytes_.note(second, 40)
    bytes_.note(other, 10)
    assert not any(s.waits for s in (first, second, other))
    bytes_.note(third, 30)
    assert [s.waits for s in (first, second, third, other)] == [False, True, True, False]
    newcomer = Sender("a")
    bytes_.note(newcomer, 5)
    assert newcomer.waits
    bytes_.note(first, 50)
    bytes_.note(first, 0)  # its message is whole: 85 are left, and the next one goes on
    assert [s.waits for s in (second, third, newcomer)] == [False, True, True]
    bytes_.note(second, 0)
    assert bytes_.total_bytes == 45 <= 100 * LOW_WATER
    assert not any(s.waits for s in (third, newcomer))


def test_a_silent_one_is_closed_while_others_wait_and_never_otherwise() -> None:
    bytes_, clock = account()
    silent, busy = Sender("a"), Sender("a")
    silent.is_stalled = True
    bytes_.note(silent, 60)
    for _ in range(100):
        clock.second()
    assert not silent.told
    bytes_.note(busy, 60)
    for _ in range(int(STALLED_AT_MOST_S)):
        clock.second()
    assert not silent.told and busy.waits
    clock.second()
    clock.second()
    assert "unfinished" in silent.told and not busy.waits and not busy.told
    assert bytes_.evicted == 1 and bytes_.total_bytes == 60


def test_what_is_kept_between_messages_counts_and_holds_nobody_back() -> None:
    bytes_, _ = account()
    keeper, other = Sender("a"), Sender("a")
    bytes_.note(keeper, 0, 90)
    bytes_.note(other, 20)
    assert bytes_.is_full and not other.waits, "it is the only one in the middle of a message"
    bytes_.note(keeper, 5, 90)
    assert keeper.waits
    bytes_.note(other, 0)
    assert not keeper.waits
    bytes_.forget(keeper)
    assert bytes_.total_bytes == 0 and not bytes_.is_full


def test_two_whole_messages_always_fit() -> None:
    assert undecoded_limit(16 * MIB, 32 * MIB) == 32 * MIB
    assert undecoded_limit(16 * MIB, 512 * MIB) == 64 * MIB


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 60), st.integers(0, 10), st.booleans()), max_size=80))
def test_in_any_order_the_sum_is_right_and_somebody_of_each_stream_is_read(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    bytes_, clock = account()
    senders = [Sender("ab"[n % 2]) for n in range(8)]
    held = dict.fromkeys(range(8), (0, 0))
    for who, unfinished, kept, is_second in steps:
        if not senders[who].told:
            bytes_.note(senders[who], unfinished, kept)
            held[who] = (unfinished, kept)
        if is_second:
            clock.second()
        assert bytes_.total_bytes == sum(map(sum, held.values()))
        for key in "ab":
            inside = [senders[n] for n in held if held[n][0] and senders[n].stream_key == key]
            assert not inside or not all(s.waits for s in inside)
            assert bytes_.is_full or not any(s.waits for s in inside)
        assert not any(s.waits for n, s in enumerate(senders) if not held[n][0])
