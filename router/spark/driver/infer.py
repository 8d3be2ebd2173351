"""What a source holds, for ``aurorad schema``: its columns, which of them have NULLs, and which could be times."""

from __future__ import annotations

from typing import Any

from router.spark.wire.pipe import Answer, Request

LOOKED_AT = 1_000_000
"""Rows. Columns without a NULL in them are said to have none, and the answer says how many rows that were."""


def infer(session: Any, request: Request) -> Answer:
    """Read the schema, and count over the first rows. Raises SparkError."""
    kind, path = request["spark"], request.get("path")
    options = {key: str(value) for key, value in (request.get("options") or {}).items()}
    if kind == "csv":
        options = {"header": "true", "inferSchema": "true", **options}
    reader = session.newSession().read.format(kind).options(**options)
    frame = reader.load(path) if path else reader.load()
    counts = ["count(1) as rows"]
    for number, field in enumerate(frame.schema):
        name = f"`{field.name.replace('`', '``')}`"
        counts.append(f"count({name}) as there_{number}")
        if field.dataType.simpleString() == "string":
            counts.append(f"count(try_cast({name} as timestamp)) as times_{number}")
    [row] = frame.limit(LOOKED_AT).selectExpr(*counts).collect() if len(counts) > 1 else [{"rows": 0}]
    found = row if isinstance(row, dict) else row.asDict()
    return {
        "rows": found["rows"],
        "all": found["rows"] < LOOKED_AT,
        "columns": [
            {
                "name": field.name,
                "type": field.dataType.simpleString(),
                "there": found[f"there_{number}"],
                "times": found.get(f"times_{number}", 0),
            }
            for number, field in enumerate(frame.schema)
        ],
    }
