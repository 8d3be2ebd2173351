"""Aggregates in expressions: ``sum(price * size) / sum(size)``.

``table`` lists the aggregates with their types, a description and an example each. ``split`` takes an expression apart
into aggregate calls and the expression over their results. The accumulators of the calls belong to the windows
(``engine/operators/windows``).
"""
