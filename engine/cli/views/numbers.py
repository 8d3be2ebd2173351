"""Numbers for people: counts, durations and sizes in a few characters."""

from __future__ import annotations


def count(n: float) -> str:
    """Write three or four digits and a letter: 12, 1,234, 56.7k, 8.9M."""
    for limit, divisor, letter in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (float("inf"), 1e9, "G")):
        if n < limit:
            return f"{n / divisor:,.0f}" if divisor == 1 and (n >= 100 or n == int(n)) else f"{n / divisor:.1f}{letter}"
    return str(n)


def duration(ns: float) -> str:
    """Write a duration without spaces, for a column: 850ns, 12.3us, 4.5ms, 1.2s, 3m20s, 5h02m."""
    if ns <= 0:
        return "-"
    for limit, divisor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms"), (60e9, 1e9, "s")):
        if ns < limit:
            return f"{ns / divisor:.0f}{unit}" if divisor == 1 or ns / divisor >= 100 else f"{ns / divisor:.1f}{unit}"
    seconds = int(ns / 1e9)
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds // 60 % 60:02d}m"


def cost(ns: float) -> str:
    """Write a duration with two digits, so that it stays as it is while it hardly changes: 850ns, 12us, 4.5ms."""
    return duration(float(f"{ns:.2g}")).replace(".0", "") if ns > 0 else "-"


def spaced_duration(ns: float) -> str:
    """Write a duration with three digits, for a sentence: 850 ns, 12.3 us, 4.5 ms, 1.2 s."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.0f} ns" if ns else "-"


def size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f}{unit}" if unit == "B" or nbytes >= 10 else f"{nbytes:.1f}{unit}"
        nbytes /= 1024
    return f"{nbytes:.1f}GiB"
