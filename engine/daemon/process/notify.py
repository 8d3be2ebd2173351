"""Notifications to the process that started the daemon, as systemd defines them (``Type=notify``).

The parent names a datagram socket in ``NOTIFY_SOCKET``. The daemon sends ``READY=1`` when every listener is open and
``STOPPING=1`` when it begins to drain. The demo uses the same way: it feeds only a daemon that said so itself.
"""

from __future__ import annotations

import contextlib
import os
import socket

NOTIFY_SOCKET = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Send a state to the parent, if it asked for it. A parent that does not listen is no error."""
    address = os.environ.get(NOTIFY_SOCKET, "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket begins with a zero byte
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(state.encode(), address)
