"""The real daemon under load, killed in the middle of applies: the old network or the new one, whole, and nothing lost.

    python -m tests.live.killed --kills 100

The load and the oracle are those of ``tests/crash/driver``: a window, a join, numbered batches, named readers. Beside
them queries come, go, change and get other names, also the boxes of the window and the join. Each cycle sends a change
and kills the daemon while it is made. The next daemon must run the network before it or the one after it, by the file
and by its parts; if the change was answered, the one after it.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))

from tests.crash.driver import PATIENCE_SECONDS, Driver

LONGEST_SECONDS = 0.25


class KilledApplies(Driver):
    def __init__(self, folder: Path, *, seed: int, spilling: bool = False, divided: bool = False) -> None:
        super().__init__(folder, seed=seed, spilling=spilling, divided=divided)
        self.base = self.file.read_text()
        self.url = "http://" + re.findall(r"http: \{listen: ([^}]*)\}", self.base)[0]
        self.running = self.base
        self.changes = random.Random(seed)
        self.sides: dict[str, tuple[str, str]] = {}  # by output: its box and definition
        self.names = {"good": "good", "sums": "sums", "pairs": "pairs"}  # boxes of the base under their present names
        self.made = 0
        self.fates: Counter[str] = Counter()
        self.wrong: list[str] = []

    # -- changes ------------------------------------------------------------------------------------------------------

    def next_text(self) -> str:
        """Return the running network with one to three random changes."""
        for _ in range(self.changes.randint(1, 3)):
            self._change()
        text = self.base
        for was, now in self.names.items():
            text = re.sub(rf"\b{was}\b", now, text)
        boxes = "".join(f"  {box}: {definition}\n" for box, definition in self.sides.values())
        outputs = "".join(f"  {output}: {{from: {box}}}\n" for output, (box, _) in self.sides.items())
        share = self.changes.choice(("true", "false"))
        text = text.replace("engine: {", f"engine: {{share: {share}, ")
        return text.replace("outputs:\n", f"{boxes}outputs:\n") + outputs

    def _change(self) -> None:
        kind = self.changes.choice(("add", "add", "remove", "alter", "rename", "rename base"))
        self.made += 1
        if kind == "rename base":
            box = self.changes.choice(list(self.names))
            self.names[box] = f"{box}{self.made}"
        elif kind == "add" or not self.sides:
            self.sides[f"q{self.made}"] = (f"b{self.made}", self._definition())
        elif kind == "remove":
            del self.sides[self.changes.choice(list(self.sides))]
        else:
            output = self.changes.choice(list(self.sides))
            box, definition = self.sides[output]
            self.sides[output] = (box, self._definition()) if kind == "alter" else (f"b{self.made}", definition)

    def _definition(self) -> str:
        step = self.changes.choice((1, 2, 3, 5))
        window = "{aggregate: sales, window: {tumbling: 7s}, by: [k], select: {m: max(v)}}"
        return self.changes.choice((f'{{filter: sales, where: "v % {step} = 0"}}', window))

    def put(self, text: str) -> tuple[int, Any]:
        """Apply a network. (0, None) when the daemon died under it."""
        url = f"{self.url}/api/v1/network?drop_state=true&force=true"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, text.encode(), method="PUT"), timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (OSError, ValueError, EOFError):
            return 0, None

    # -- kills --------------------------------------------------------------------------------------------------------

    def run_kills(self, kills: int) -> dict[str, Any]:
        begun = time.monotonic()
        self.start()
        collectors, publisher = self._load()
        for kill in range(kills):
            before = self.acknowledged
            self._wait_until(lambda before=before: self.acknowledged > before + 5)  # type: ignore[misc]
            self._kill_in_apply(kill)
        verdict = self._finish(collectors, publisher, begun)
        return {**verdict, "kills": kills, "fates": dict(self.fates), "wrong": self.wrong}

    def _kill_in_apply(self, kill: int) -> None:
        text, answers = self.next_text(), []
        thread = threading.Thread(target=lambda: answers.append(self.put(text)))
        thread.start()
        time.sleep(self.rng.uniform(0, LONGEST_SECONDS))
        self.kill()
        thread.join()
        status, answer = answers[0]
        self.start()
        found = self._running_text()
        if status not in (0, 200):
            self.wrong.append(f"kill {kill}: refused with {status}: {answer}")
        if status == 200 and found != text:
            self.wrong.append(f"kill {kill}: the change was answered, and is gone")
        if found not in (self.running, text):
            self.wrong.append(f"kill {kill}: neither the old network nor the new one runs")
        self.fates["answered" if status == 200 else "new" if found == text else "old"] += 1
        self.running = found

    def _running_text(self) -> str:
        """Wait until the daemon listens, and return the file that it runs; its parts must be those of the file."""
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while True:
            try:
                file = self._ask("network/file")["text"]
                parts = self._ask("network")
                break
            except OSError:
                assert time.monotonic() < deadline, self.log.read_text()[-3_000:]
                time.sleep(0.05)
        named = set(re.findall(r"^  (\w+):", str(file), re.MULTILINE))
        there = {part["name"] for kind in ("streams", "outputs") for part in parts[kind]}
        boxes = {name for box in parts["boxes"] for name in (box["name"], *box.get("also", ()))}
        if not there | boxes <= named:
            self.wrong.append(f"the parts {sorted((there | boxes) - named)} are not those of the file")
        return str(file)

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)


def holds(verdict: dict[str, Any]) -> bool:
    """Tell whether nothing was lost or came twice, and every daemon ran the old network or the new one."""
    good = verdict["lost"] == verdict["repeats_unflagged"] == verdict["numbers_missing"] == verdict["exit"] == 0
    return good and not verdict["wrong"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--spilling", action="store_true")
    arguments.add_argument("--divided", action="store_true")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        driver = KilledApplies(Path(folder), seed=chosen.seed, spilling=chosen.spilling, divided=chosen.divided)
        verdict = driver.run_kills(chosen.kills)
        if not holds(verdict):
            print(driver.log.read_text()[-6_000:])
    print(json.dumps(verdict))
    sys.exit(0 if holds(verdict) else 1)


if __name__ == "__main__":
    main()
