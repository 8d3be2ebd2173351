"""The loop of a time index: where in a chunk, sorted by key and time, the rows of a key reach a time.

numpy searches for each needle anew, twice: for the time, then for key and time. The loop uses that needles come in
order of key, and within a key in order of time: it goes on from the place of the last one, in steps that double.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from storage.compiled.kernel import Kernel

Integers = npt.NDArray[np.int64]


def bounds_loop(
    places: Integers,
    bits: int,
    times: Integers,
    keys: Integers,
    at: Integers,
    limit: Integers,
    is_right: bool,
    out: Integers,
) -> None:
    """Write the first position in ``places`` of the key with a time from ``limit[at]`` on, or above it if
    ``is_right``; the end of the key where there is none."""
    mask = (1 << bits) - 1
    place = end = 0
    for i in range(keys.shape[0]):
        if i == 0 or keys[i] != keys[i - 1]:
            place = end
            for edge in range(2):  # where the key begins, and where it ends
                target = (keys[i] + edge) << bits
                low, high, step = place, places.shape[0], 1
                while low < high:
                    probe = min(low + step, high) - 1 if step > 0 else (low + high) // 2
                    if places[probe] < target:
                        low = probe + 1
                        step *= 2
                    else:
                        high = probe
                        step = 0
                if edge == 0:
                    place = low
                else:
                    end = low
        wanted = limit[at[i]]
        low, high, step = place, end, 1
        while low < high:
            probe = min(low + step, high) - 1 if step > 0 else (low + high) // 2
            time = times[places[probe] & mask]
            if time < wanted or (is_right and time == wanted):
                low = probe + 1
                step *= 2
            else:
                high = probe
                step = 0
        place = low
        out[i] = place


def _bounds(
    places: Integers,
    bits: int,
    times: Integers,
    keys: Integers,
    at: Integers,
    limit: Integers,
    is_right: bool,
    out: Integers,
) -> None:
    edge = np.searchsorted(times, limit, "right" if is_right else "left").take(at)
    out[:] = np.searchsorted(places, (keys << bits) | edge)


def _signatures(types: Any) -> list[tuple[Any, ...]]:
    column = types.int64[::1]
    return [(column, types.int64, column, column, column, column, types.boolean, column)]


KEY_BOUNDS = Kernel("key_bounds", _bounds, bounds_loop, _signatures)
