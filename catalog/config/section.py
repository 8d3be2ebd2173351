"""What every section of the network file is built on: the base of the models, and the name of a format."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationInfo

from catalog.config.words import RefusedValueError, did_you_mean


def _check_format(value: str, info: ValidationInfo) -> str:
    """Check the name of a codec. The catalog knows no codec: the engine hands their names in."""
    formats = (info.context or {}).get("formats")
    if formats is not None and value not in formats:
        raise RefusedValueError(f"'{value}' is not one of {', '.join(formats)}", did_you_mean(value, formats))
    return value


Format = Annotated[str, AfterValidator(_check_format)]


def _null_word(value: object) -> object:
    """Return the word null for YAML's null: ``nan: null`` means it."""
    return "null" if value is None else value


NanForm = Annotated[Literal["null", "string"], BeforeValidator(_null_word)]
"""How a format of text writes NaN and infinite values."""


class Section(BaseModel):
    """The base of all sections: an unknown key is an error, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
