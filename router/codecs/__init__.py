"""The formats, by their names in a network file. A new codec is one file and one line here."""

from __future__ import annotations

from router.codecs.base import Decoder, Encoder
from router.codecs.ndjson import NdjsonDecoder, NdjsonEncoder

DECODERS: dict[str, type[Decoder]] = {"ndjson": NdjsonDecoder}
ENCODERS: dict[str, type[Encoder]] = {"ndjson": NdjsonEncoder}
