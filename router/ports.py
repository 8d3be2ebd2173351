"""Ports that are taken: which process listens on them, for error messages that say what to do.

Linux lists the listening sockets in ``/proc/net/tcp``, and the sockets of a process in ``/proc/PID/fd``. The second is
readable for processes of the same user, or for root. Where it is not readable, the message names the user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import socket
from collections.abc import Iterator
from pathlib import Path

from catalog.config.units import Address

_PROC = Path("/proc")
_LISTENING = "0A"  # the state of a listening socket in /proc/net/tcp


def why_not(error: OSError, port: int) -> str:
    """Say why a socket cannot listen on a port. A port in use is named with the process that has it, where known."""
    if error.errno != errno.EADDRINUSE:
        return error.strerror or str(error)
    holder = holder_of(port)
    return f"the port is in use by {holder}" if holder else "the port is in use"


def why_taken(at: Address) -> str:
    """Say why nobody can listen on this address now; "" when it is free. The check binds and closes the address."""
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((at.host, at.port))
            probe.listen(1)
        except OSError as error:
            return why_not(error, at.port)
    return ""


def holder_of(port: int) -> str:
    """Describe the process that listens on a port: ``aurorad (pid 4711)``; "" when none is found."""
    owners = dict(_listening(port))
    wanted = {f"socket:[{inode}]" for inode in owners}
    for pid in sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()) if wanted else ():
        if wanted & set(_sockets(pid)):
            return f"{_name(pid)} (pid {pid})"
    return "".join(f"a process of user {_user(uid)}" for uid in list(owners.values())[:1])


def _listening(port: int) -> Iterator[tuple[str, int]]:
    """Yield (inode, user id) of the sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9], int(fields[7])


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
        for entry in os.scandir(_PROC / str(pid) / "fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(entry.path)


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "comm").read_text().strip()
    return "a process"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
