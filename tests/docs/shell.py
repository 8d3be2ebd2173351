"""Runs the commands of a document, on ports of their own: against one demo daemon, in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.lab.bench.harness import free_ports
from engine.lab.processes import command, end, shipped, spawn
from tests.docs.fences import ROOT, Fence

RATE = "400"  # tuples a second: the demo must not need the machine
LIMIT_SECONDS = 240.0  # of a block of commands: each starts processes, which takes 20 times as long at load 20


@dataclass
class Demo:
    """A running demo daemon, by the ports that configs/demo.yaml names."""

    ports: dict[str, int]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['9400']}"


@contextmanager
def running_demo(folder: Path) -> Iterator[Demo]:
    text = shipped("demo.yaml").read_text()
    old = sorted(set(re.findall(r":(94\d\d)\"", text)))
    ports = dict(zip(old, free_ports(len(old)), strict=True))
    for a, b in ports.items():
        text = text.replace(f':{a}"', f':{b}"')
    file = folder / "demo.yaml"
    file.write_text(text)
    with (folder / "demo.out").open("wb") as out:
        process = spawn(command("demo", "--file", str(file), "--rate", RATE), stdout=out)
        try:
            demo = Demo(ports)
            wait_until_explained(demo)
            yield demo
        finally:
            end(process)


def wait_until_explained(demo: Demo) -> None:
    """Until tuples come out and some of them were followed."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{demo.url}/api/v1/explain?output=tape", timeout=5) as answer:
                if b'"sampled":0' not in answer.read():
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("the demo did not start")


@dataclass
class Shell:
    """One document's commands. What they write goes below ``folder``."""

    folder: Path
    demo: Demo | None
    output: str = ""  # of the last block
    background: list[tuple[Fence, subprocess.Popen[bytes], Path]] = field(default_factory=list)
    after: dict[int, Fence] = field(default_factory=dict)  # by the line of a background block: the block that feeds it

    def __post_init__(self) -> None:
        programs = self.folder / "bin"
        programs.mkdir(parents=True)
        python = f'exec "{sys.executable}"'
        aurorad = f'{python} -c "from engine.cli import main; main()" "$@"'
        self._program(programs / "aurorad", aurorad)
        self._program(programs / "python", f'{python} "$@"')
        for name in ("nc", "curl"):
            if shutil.which(name) is None:
                self._program(programs / name, f'{python} -m tests.docs.shims {name} "$@"')
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            **({"AURORAD_URL": self.demo.url} if self.demo is not None else {}),
        }

    @staticmethod
    def _program(path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def text_of(self, fence: Fence) -> str:
        """The commands as this test can run them: other ports, another folder than /tmp, and no .venv."""
        text = fence.text.replace("/tmp/", f"{self.folder}/").replace(".venv/bin/", "")
        for old, new in (self.demo.ports if self.demo is not None else {}).items():
            text = re.sub(rf"\b{old}\b", str(new), text)
        return text

    def run(self, fence: Fence) -> None:
        script = ["bash", "-eu", "-c", self.text_of(fence)]
        if fence.mode == "until":
            out = self.folder / f"background-{fence.line}"
            with out.open("wb") as file:
                started = subprocess.Popen(script, cwd=ROOT, env=self.environment, stdin=subprocess.PIPE, stdout=file)
            self.background.append((fence, started, out))
            time.sleep(0.5)  # connected before the next block sends
            return
        for waiting, _, _ in self.background:
            self.after.setdefault(waiting.line, fence)
        done = subprocess.run(
            script, cwd=ROOT, env=self.environment, capture_output=True, timeout=LIMIT_SECONDS, check=False
        )
        self.output = (done.stdout + done.stderr).decode()
        expected = int(fence.argument) if fence.mode == "exit" else 0
        assert done.returncode == expected, f"{fence.place} exits {done.returncode}:\n{self.output}"

    def shows(self, fence: Fence) -> None:
        got = self.output.replace(f"{self.folder}/", "/tmp/")
        missing = [line for line in fence.text.splitlines() if line.strip() not in got]
        assert not missing, f"{fence.place}: not in the output:\n{got}"

    def finish(self) -> None:
        """End what runs in the background; each must have shown its text."""
        try:
            for fence, _, out in self.background:
                deadline = time.monotonic() + LIMIT_SECONDS
                while fence.argument.encode() not in (seen := out.read_bytes()) and time.monotonic() < deadline:
                    time.sleep(1.0)
                    if (answered := self.after.get(fence.line)) is not None:
                        self.run(answered)  # the first time it may have come before the background was ready for it
                assert fence.argument.encode() in seen, f"{fence.place}: {fence.argument} did not come"
        finally:
            for _, process, _ in self.background:
                process.kill()
                assert process.stdin is not None
                process.stdin.close()
                process.wait()
