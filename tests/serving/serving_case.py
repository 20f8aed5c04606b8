"""Runs and bundles of several kinds on one world, made once, for the tests of serving."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import ecoc
from ecoc.serving.engine import Request

RUNS: dict[str, dict[str, Any]] = {
    "ecoc": {"method": "ecoc", "config": {"method": {"control": 1.0}}},
    "ecoc-counts": {"method": "ecoc", "config": {"train": {"counts": 0.5}}},
    "supervised": {"encoder": "gru4rec"},
    "hypergraph": {"encoder": "dhcn"},
    "sqn": {"method": "sqn"},
    "markov": {"method": "markov"},
}
WITH_CRITIC = ("ecoc", "ecoc-counts")


@cache
def folder_of_models(base: Path) -> Path:
    """A world's log, a short run of every kind on it, and `NAME-bundle` of each."""
    path = base / "served"
    path.mkdir()
    data = ecoc.prepare("world:small", path / "data", events=3000, threads=1)
    for name, settings in RUNS.items():
        config: dict[str, dict[str, Any]] = {
            "encoder": {"dim": 8, "length": 12},
            "train": {"max_steps": 15, "threads": 1, "counts": "off"},
        }
        for section, values in settings.get("config", {}).items():
            config[section] = {**config.get(section, {}), **values}
        names = {key: value for key, value in settings.items() if key != "config"}
        ecoc.train(data, path / name, config=config, **names)
        ecoc.export(path / name, path / f"{name}-bundle")
    return path


def some_requests(ids: list[str], count: int, *, has_critic: bool, seed: int = 0) -> list[Request]:
    """Requests that differ in everything: length, k, filters, ranking mode and weight."""
    rng = random.Random(seed)
    modes: list[dict[str, Any]] = [{}, {"rank_by": "policy"}]
    if has_critic:
        modes += [{"rank_by": "blend", "w": w} for w in (0.0, 0.5, 10.0)]
        modes += [{"w": 3.0}, {"rank_by": "rerank"}, {"rank_by": "rerank", "m": 5}, {"rank_by": "cosine"}]
    return [
        Request(
            history=[rng.choice([*ids, "nowhere"]) for _ in range(rng.choice([0, 1, 2, 11, 12, 13, 40]))],
            k=rng.choice([1, 3, 10, 1000]),
            exclude_seen=rng.random() < 0.5,
            exclude=rng.sample(ids, rng.choice([0, 4])),
            only=rng.sample(ids, 6) if rng.random() < 0.25 else None,
            **rng.choice(modes),
        )
        for _ in range(count)
    ]
