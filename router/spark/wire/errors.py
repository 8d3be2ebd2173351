"""What can go wrong with Spark. One class for each reaction of the caller; ``kind`` names the class on the pipe."""

from __future__ import annotations

from catalog.errors import AuroraError


class SparkError(AuroraError):
    """The base class of the others."""

    kind = "failed"


class SparkUnavailableError(SparkError):
    """Spark cannot start: no pyspark, no Java, or no master at the address. The operator has to act."""

    kind = "unavailable"


class SparkRefusedError(SparkError):
    """The request makes no sense: a path that does not exist, a schema that does not fit. Retrying does not help."""

    kind = "refused"


class SparkFailedError(SparkError):
    """Spark ran the job and it failed after all retries of its tasks: a corrupt file, a full disk."""

    kind = "failed"


class SparkLostError(SparkError):
    """The driver or its JVM died, or missed a deadline and was killed. The next request starts another driver."""

    kind = "lost"


KINDS: dict[str, type[SparkError]] = {
    error.kind: error for error in (SparkUnavailableError, SparkRefusedError, SparkFailedError, SparkLostError)
}
