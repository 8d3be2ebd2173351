"""The formats, by their names in a network file. A new codec is one file and one line here."""

from __future__ import annotations

from router.codecs.arrow import ArrowDecoder, ArrowEncoder
from router.codecs.base import Decoder, Encoder
from router.codecs.csv import CsvDecoder, CsvEncoder
from router.codecs.ndjson import NdjsonDecoder, NdjsonEncoder

DECODERS: dict[str, type[Decoder]] = {"ndjson": NdjsonDecoder, "csv": CsvDecoder, "arrow": ArrowDecoder}
ENCODERS: dict[str, type[Encoder]] = {"ndjson": NdjsonEncoder, "csv": CsvEncoder, "arrow": ArrowEncoder}
