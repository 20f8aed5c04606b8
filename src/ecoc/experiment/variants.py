"""Variants: what the rows of the tables are trained with. One home for every setting that makes a comparison fair.

All variants of one table get the same steps, windows, validations and encoder. Averaged weights stand beside the online
ones for every method but plain `supervised`; ECoC averages its own. On the paper's datasets its presets are the common
ground; elsewhere it is the defaults, and `ecoc-paper` takes the losses of preset `paper` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ecoc.data.sequences import Dataset
from ecoc.errors import InputError, did_you_mean
from ecoc.methods import METHODS
from ecoc.policies.base import RankBy
from ecoc.runs.config import RunConfig, open_preset

BASE = "supervised+ema"
PAPER_DATA = ("yelp", "tmall", "rl4rs")  # source formats, which name their presets
VALIDATIONS = 5
_VALIDATION_CASES = 1000
_LOOKED_AT, _KINDS = 1 << 20, 100  # rewards of more kinds than this are amounts
_TAU, _PAPER_TAU = 0.02, 0.005  # rate of averaged weights: ecoc's default, the paper's


@dataclass(frozen=True)
class Variant:
    """A method with settings of its own. `views` are the ways it is judged: row title -> how it acts."""

    name: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the method's settings
    train: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, RankBy | None] = field(default_factory=dict)
    paced_as: str = ""  # the variant that costs as much a step

    @property
    def is_paper(self) -> bool:
        """Whether it has the paper's losses."""
        return self.name.startswith("ecoc-paper")

    @property
    def has_encoder(self) -> bool:
        """Whether it uses an encoder at all."""
        return METHODS[self.method].has_encoder

    def but(
        self, name: str, *, changes: Mapping[str, Any] | None = None, train: Mapping[str, Any] | None = None
    ) -> "Variant":
        """The same with some settings changed."""
        views = {title.replace(self.name, name): how for title, how in self.views.items()}
        return replace(
            self,
            name=name,
            changes={**self.changes, **(changes or {})},
            train={**self.train, **(train or {})},
            views=views,
            paced_as=self.paced_as or self.name,
        )


def _plain(name: str, method: str = "", **train: Any) -> Variant:
    return Variant(name, method or name, train=train, views={name: None})


ECOC = Variant("ecoc", "ecoc", views={"ecoc, w = 0": "policy", "ecoc, w = 10": "blend"})
PAPER = Variant("ecoc-paper", "ecoc", views={"ecoc-paper": None})

VARIANTS: dict[str, Variant] = {
    one.name: one
    for one in (
        _plain("supervised"),
        _plain(BASE, "supervised"),
        ECOC,
        PAPER,
        *(_plain(name) for name in ("sqn", "sa2c", "sdac_sr", "sdac_dc", "prl", "neural_lcb")),
    )
}


def variant_of(name: str) -> Variant:
    """By its name; any other trained method takes part with its default settings."""
    if name in VARIANTS:
        return VARIANTS[name]
    known = [*VARIANTS, *(each for each in METHODS if each not in VARIANTS and METHODS[each].is_trained)]
    if name not in known:
        raise InputError(f"unknown method '{name}'; {did_you_mean(name, known)}")
    return _plain(name)


def preset_of(data: Dataset) -> str | None:
    """The preset of a dataset that is one of the paper's."""
    return data.manifest.source if data.manifest.source in PAPER_DATA else None


def _paper_scale(data: Dataset) -> str:
    """As the paper scales rewards: stars and clicks as they are, amounts of money by their mean."""
    return "mean" if len(np.unique(data.rewards[:_LOOKED_AT])) > _KINDS else "none"


def settings(
    variant: Variant, encoder: str, data: Dataset, *, steps: int, seed: int = 0, threads: int = 1
) -> RunConfig:
    """Everything a run is trained with."""
    preset = preset_of(data)
    method: dict[str, Any] = {}
    common: dict[str, Any] = {"encoder": {}, "train": {}}
    if preset is not None:
        common = open_preset(preset, encoder=encoder, method=variant.method)
        method = common["method"]
    train = dict(common["train"])
    if variant.is_paper:
        train["reward_scale"] = train.get("reward_scale", _paper_scale(data))  # what the paper's alpha is meant for
        method = method or open_preset("paper", encoder=encoder, method="ecoc")["method"]
    elif variant.method == "ecoc" and preset is not None:  # the default's losses are made for rewards up to 1
        method = open_preset(preset, encoder=encoder, method="supervised")["method"]
        train |= {"reward_scale": "auto", "act_with": "best"}
    if 0 < data.counts.items <= method.get("n2", 0):  # a softmax over all items is no dearer, and exact
        method |= {"loss": "full", "n2": 0}
    if variant.name != "supervised" and variant.method != "ecoc":
        train["ema"] = _PAPER_TAU if preset is not None else _TAU
    train |= variant.train
    train |= {
        "max_steps": steps,
        "validate_every": -(-steps // VALIDATIONS),
        "validation_cases": _VALIDATION_CASES,
        "patience": 0,
        "keep": 1,
        "threads": threads,
        "seed": seed,
    }
    return RunConfig.build(
        {
            "encoder": {**common["encoder"], "name": encoder},
            "method": {**method, **variant.changes, "name": variant.method},
            "train": train,
        }
    )
