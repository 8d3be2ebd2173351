"""What every section of the network file is built on: the base of the models, and the name of a format."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo

from catalog.config.words import RefusedValueError, did_you_mean


def _check_format(value: str, info: ValidationInfo) -> str:
    """Check the name of a codec. The catalog knows no codec: the engine hands their names in."""
    formats = (info.context or {}).get("formats")
    if formats is not None and value not in formats:
        raise RefusedValueError(f"'{value}' is not one of {', '.join(formats)}", did_you_mean(value, formats))
    return value


Format = Annotated[str, AfterValidator(_check_format)]


class Section(BaseModel):
    """The base of all sections: an unknown key is an error, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
