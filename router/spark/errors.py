"""What can go wrong with Spark, by what to do about it."""

from __future__ import annotations

from catalog.errors import AuroraError


class SparkError(AuroraError):
    """Root of these. ``kind`` is how it travels over the driver's pipe."""

    kind = "failed"


class SparkUnavailableError(SparkError):
    """There is no Spark to be had: no pyspark, no Java, a master that does not answer. Someone has to do something."""

    kind = "unavailable"


class SparkRefusedError(SparkError):
    """What was asked for cannot be: no such path, a schema that does not fit. Asking again gives the same answer."""

    kind = "refused"


class SparkFailedError(SparkError):
    """Spark ran it and it failed, each task as often as it may: a corrupt file, a full disk."""

    kind = "failed"


class SparkLostError(SparkError):
    """The driver or its JVM died, or did not answer in time and was ended. The next call starts another."""

    kind = "lost"


KINDS: dict[str, type[SparkError]] = {
    error.kind: error for error in (SparkUnavailableError, SparkRefusedError, SparkFailedError, SparkLostError)
}
