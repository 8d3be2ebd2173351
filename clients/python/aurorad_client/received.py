"""The received bytes, from which the protocols take lines and blocks."""

from __future__ import annotations

import json
from typing import Any

from aurorad_client.errors import ProtocolError

LINE_BYTES = 64 * 1024
COMPACT_BYTES = 1024**2


def not_aurorad(shown: str) -> ProtocolError:
    return ProtocolError(f"the server does not speak the protocol of aurorad: {shown:.80}")


def encode_line(**content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


class ReceivedBytes:
    """The received bytes, from which the protocols take lines and blocks."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # the first byte that is not taken

    def __len__(self) -> int:
        return len(self._data) - self._at

    def add(self, data: bytes) -> None:
        if self._at == len(self._data):
            self._data, self._at = bytearray(data), 0
        else:
            self._data += data

    def next_line(self) -> dict[str, Any] | None:
        """Take the message on the next line; None while the line is incomplete."""
        end = self._data.find(b"\n", self._at)
        if end < 0:
            if len(self) > LINE_BYTES:
                raise not_aurorad(self._shown())
            return None
        try:
            message = json.loads(self._data[self._at : end])
        except ValueError as error:
            raise not_aurorad(self._shown()) from error
        if not isinstance(message, dict):
            raise not_aurorad(self._shown())
        self._take(end + 1)
        return message

    def next_block(self, size: int) -> bytes | None:
        """Take the next ``size`` bytes; None while there are fewer."""
        if len(self) < size:
            return None
        block = bytes(memoryview(self._data)[self._at : self._at + size])
        self._take(self._at + size)
        return block

    def next_lines(self) -> bytes | None:
        """Take all complete lines; None while there is none."""
        end = self._data.rfind(b"\n", self._at)
        return None if end < 0 else self.next_block(end + 1 - self._at)

    def skip_to(self, marker: bytes, keep: int) -> bool:
        """Skip to these bytes, and return whether they are there. If not, keep the last ``keep`` bytes."""
        at = self._data.find(marker, self._at)
        self._take(at if at >= 0 else max(self._at, len(self._data) - keep))
        return at >= 0

    def rest(self) -> bytes:
        return bytes(self._data[self._at :])

    def clear(self) -> None:
        self._data, self._at = bytearray(), 0

    def _take(self, at: int) -> None:
        self._at = at
        if at > COMPACT_BYTES:
            del self._data[:at]
            self._at = 0

    def _shown(self) -> str:
        return repr(bytes(self._data[self._at : self._at + 80]))
