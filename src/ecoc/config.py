"""Configuration: frozen pydantic models, defaults < file < overrides, and errors that name the right key."""

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ecoc.errors import InputError, did_you_mean


class Config(BaseModel):
    """Base of every component's settings. Field descriptions are the help text and the documentation."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, coerce_numbers_to_str=True
    )

    @classmethod
    def build(cls, values: Mapping[str, Any], *, where: str = "config") -> Self:
        """Validate `values`; a wrong value raises InputError with its key and, for a wrong key, the nearest one."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise InputError("; ".join(_explain(cls, part, where) for part in error.errors()[:3])) from None


def _explain(model: type[BaseModel], part: Any, where: str) -> str:
    """One validation error as `where: key: what is wrong, what to do`."""
    path = [str(step) for step in part["loc"]]
    key = ".".join(path)
    if part["type"] == "extra_forbidden":
        return f"{where}: unknown option '{key}'; {did_you_mean(path[-1], _fields_at(model, path[:-1]))}"
    if part["type"] == "missing":
        return f"{where}: option '{key}' is missing; {_described(model, path)}"
    message = part["msg"].removeprefix("Value error, ")
    return f"{where}: {key}{': ' if key else ''}{message}" + (
        "" if part["type"] == "value_error" else f", found {part['input']!r:.80}"
    )


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    for step in path:
        field = model.model_fields.get(step)
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            return []
        model = field.annotation
    return list(model.model_fields)


def _described(model: type[BaseModel], path: list[str]) -> str:
    field = model.model_fields.get(path[0])
    return f"it is the {field.description}" if field is not None and field.description else "give it"


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Turn `--set a.b=2` pairs into a nested dictionary; values are read as TOML, anything else as plain text."""
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {pair!r}: expected key=value, for example --set min_length=5")
        place = result
        *parents, last = key.strip().split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise InputError(f"--set {pair!r}: '{parent}' has already been given a value")
        place[last] = _toml_value(text.strip())
    return result


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also whole numbers of thousands of digits
        return text
