"""A process of the tests: a Structured Streaming query from an output of a daemon into a stream of it.

    python -m tests.spark.query ADDRESS CHECKPOINT [TOKEN CACERT]

It runs until it is killed, or until its input says a word: ``finish`` ends it once everything is through.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "clients" / "spark"), str(ROOT)])
    sys.path[:0] = [str(ROOT / "clients" / "spark")]
    address, checkpoint = sys.argv[1:3]
    login = dict(zip(("token", "cacert"), sys.argv[3:5], strict=True)) if len(sys.argv) > 3 else {}
    from router.spark.driver.launch import launch
    from tests.spark.conftest import QUICK

    with tempfile.TemporaryDirectory() as scratch:
        launched = launch("local[2]", QUICK, Path(scratch))
        spark = launched.session
        source = spark.readStream.format("aurorad").options(
            address=address, output="numbers", reader="query", maxRows=2_000, **login
        )
        query = (
            source.load()
            .selectExpr("n", "n * 2 as twice")
            .writeStream.format("aurorad")
            .options(address=address, stream="doubled", checkpointLocation=checkpoint, **login)
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        sys.stdout.write("running\n")
        sys.stdout.flush()
        sys.stdin.readline()
        query.processAllAvailable()
        query.stop()
        read = spark.read.format("aurorad").options(
            address=address, output="numbers", reader="batch", partitions=3, **login
        )
        negative = read.options(**{"from": 10, "to": 60}).load().selectExpr("-n as n", "cast(0 as bigint) as twice")
        write = negative.repartition(2).write.format("aurorad").options(address=address, stream="doubled", **login)
        write.mode("append").save()
        spark.stop()
        launched.jvm.kill()
        launched.jvm.wait()


if __name__ == "__main__":
    main()
