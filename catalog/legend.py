"""The legend: what each word and column of ``aurorad top`` and of the page means, with its unit.

Both show the same figures (``/api/v1/stats``) under the same names, so there is one legend. ``docs/operations.md`` has
it as a table.
"""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    where: str  # engine | output | stream | box
    word: str
    meaning: str


LEGEND = tuple(
    Term(*term)
    for term in (
        ("engine", "utility", "the sum over all outputs, of the number of outputs"),
        ("engine", "load", "arriving work over what the fullest resource can do; above 100 % tuples wait or drop"),
        ("engine", "load by resource", "the same of workers, decoding, I/O, log; encoding is part of the workers'"),
        ("engine", "memory", "bytes in queues and in the state of boxes, and the budget for both (engine.memory)"),
        ("engine", "policy", "the rule that chooses what runs next, and the unit that it schedules"),
        ("engine", "workers busy", "share of the last seconds in which each worker thread ran boxes"),
        ("engine", "shedding", "level of the shed plan in force: 0 drops nothing, 1 drops all that may be dropped"),
        ("engine", "dropped", "tuples dropped since the start, on all arcs (by reason in top) and for slow readers"),
        ("engine", "up", "time since the start"),
        ("engine", "overhead", "share of the busy time outside boxes since the start: deciding, queues, workers"),
        ("engine", "unaccounted for", "tuples that no counter explains; a bug if it is not 0"),
        ("engine", "k, M, us, MiB", "thousand, million; millionth of a second; 1,048,576 bytes"),
        ("output", "rate/s", "tuples a second that come out"),
        ("output", "delivered", "share delivered in the last seconds, of the tuples that would come out without drops"),
        ("output", "dropped", "tuples dropped since the start before this output, undecoded too, or for slow readers"),
        ("output", "p50, p99, p99.9", "from arrival to delivery over the last 10 s; p99: 99 of 100 took no longer"),
        ("output", "max, mean", "the longest delay of the last 10 s, and the mean"),
        ("output", "utility", "how useful the output is by its QoS graphs, 0 to 1: the worse of delay and loss"),
        ("output", "missed", "share of the last 10 s' tuples that were later than the deadline (SDMR in the papers)"),
        ("output", "slowdown", "delay over the time on an idle engine; the mean of all tuples since the start"),
        ("output", "worst", "the largest slowdown of one tuple since the start"),
        ("output", "l2", "root of the sum of the squared slowdowns: it grows most with a few long delays"),
        ("output", "waiting", "tuples in the queues before this output now"),
        ("output", "readers", "clients connected now; an output without a reader is shed first while others have one"),
        ("stream", "rate/s", "tuples a second that arrive and are valid"),
        ("stream", "received", "tuples since the start, valid or not"),
        ("stream", "refused", "of these, those that did not fit the schema, a limit or max_skew: /api/v1/dead_letters"),
        ("stream", "dropped", "tuples dropped since the start, undecoded or on the arcs behind this stream"),
        ("stream", "senders", "clients that are connected now"),
        ("box", "in/s", "tuples a second that the box takes in"),
        ("box", "cost/tuple", "time of the box per tuple over the last seconds, all included (ns, us, ms, s)"),
        ("box", "cost/call", "time of one call of the box"),
        ("box", "train", "tuples in one call"),
        ("box", "selectivity", "tuples out per tuple in"),
        ("box", "busy", "share of the last seconds in which the box ran; at most 100 %: one worker runs it at a time"),
        ("box", "waiting", "tuples in the queues before the box now"),
        ("box", "keys", "keys that the box remembers; nothing for a box without keys"),
        ("box", "state", "bytes of memory that the box uses to remember: windows, joins, keys"),
    )
)  # fmt: skip
