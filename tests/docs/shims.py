"""``nc`` and ``curl`` for machines that have neither, as far as the documents use them.

python -m tests.docs.shims nc [-N] HOST PORT
python -m tests.docs.shims curl -s URL
"""

from __future__ import annotations

import socket
import sys
import threading
import urllib.error
import urllib.request


def nc(host: str, port: str, close_at_end: bool) -> None:
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.settimeout(None)

        def send() -> None:
            while block := sys.stdin.buffer.read1(65536):
                connection.sendall(block)
            if close_at_end:
                connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        while block := connection.recv(65536):
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()


def curl(url: str) -> None:
    try:
        with urllib.request.urlopen(url if "://" in url else f"http://{url}", timeout=30) as answer:
            sys.stdout.buffer.write(answer.read())
    except urllib.error.HTTPError as error:
        sys.stdout.buffer.write(error.read())


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    plain = [word for word in words if not word.startswith("-")]
    if command == "nc":
        nc(*plain, close_at_end="-N" in words)
    else:
        curl(plain[-1])
