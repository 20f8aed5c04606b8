"""World names such as `world:bait:default`: kind and size."""

from typing import Any

from ecoc.errors import InputError, did_you_mean
from ecoc.world.market import MarketConfig

_SIZES: dict[str, dict[str, dict[str, int]]] = {
    "bait": {
        "small": {"sessions": 1_000, "items": 200, "topics": 10},
        "default": {"sessions": 10_000, "items": 200, "topics": 10},
        "large": {"sessions": 250_000, "items": 1_000, "topics": 20},
    },
    "satiation": {
        "small": {"sessions": 1_000, "items": 400, "topics": 12},
        "default": {"sessions": 10_000, "items": 2_000, "topics": 25},
        "large": {"sessions": 250_000, "items": 2_000, "topics": 25},
    },
}

_SIZED = {f"world:{kind}:{size}": (kind, size) for kind, sizes in _SIZES.items() for size in sizes}
_SHORT = {f"world:{size}": ("bait", size) for size in _SIZES["bait"]}
_PLAIN = {f"world:{kind}": (kind, "default") for kind in _SIZES}

WORLDS: dict[str, tuple[str, str]] = {**_SIZED, **_PLAIN, **_SHORT}


def parse_world(name: str, *, seed: int = 0, events: int | None = None, items: int | None = None) -> MarketConfig:
    """Settings of a world; `events` and `items` replace those of its size, `seed` gives another of its kind."""
    if name not in WORLDS:
        raise InputError(f"unknown world '{name}'; {did_you_mean(name, WORLDS)}")
    kind, size = WORLDS[name]
    values: dict[str, Any] = {"kind": kind, "seed": seed, **_SIZES[kind][size]}
    steps: int = MarketConfig.model_fields["steps"].default
    if events is not None:
        if events < steps:
            raise InputError(f"{name}: events: {events} is less than one session; give at least {steps}")
        values["sessions"] = round(events / steps)
    if items is not None:
        values["items"] = items
        values["topics"] = max(1, min(values["topics"], items // 8))  # users tire of a topic with few items at once
    return MarketConfig.build(values, where=name)
