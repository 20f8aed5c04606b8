"""Variants: methods with settings, one or more rows of a table each. All settings of a fair comparison are here.

All variants of a table have the same steps, windows, validations and encoder. Every method but plain `supervised` also
has averaged weights; ECoC averages its own. On the paper's datasets all variants start from the preset of the dataset;
elsewhere from the defaults, and `ecoc-paper` takes the losses of preset `paper` alone.
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
_SAMPLED, _KINDS = 1 << 20, 100  # rewards looked at; with more distinct values than this they are amounts
_TAU, _PAPER_TAU = 0.02, 0.005  # rate of averaged weights: default of ecoc, and of the paper


@dataclass(frozen=True)
class Variant:
    """A method with its own settings. `views` are its rows in a table: title -> ranking mode."""

    name: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)  # in the settings of the method
    train: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, RankBy | None] = field(default_factory=dict)
    timed_as: str = ""  # the variant with the same cost per step

    @property
    def is_paper(self) -> bool:
        """Whether it has the losses of the paper."""
        return self.name.startswith("ecoc-paper")

    @property
    def has_encoder(self) -> bool:
        """Whether its method uses an encoder."""
        return METHODS[self.method].has_encoder

    def but(
        self, name: str, *, changes: Mapping[str, Any] | None = None, train: Mapping[str, Any] | None = None
    ) -> "Variant":
        """The same variant with some settings changed."""
        views = {title.replace(self.name, name): mode for title, mode in self.views.items()}
        return replace(
            self,
            name=name,
            changes={**self.changes, **(changes or {})},
            train={**self.train, **(train or {})},
            views=views,
            timed_as=self.timed_as or self.name,
        )


def _plain(name: str, method: str = "", **train: Any) -> Variant:
    return Variant(name, method or name, train=train, views={name: None})


ECOC = Variant("ecoc", "ecoc", views={"ecoc, w = 0": "policy", "ecoc, w = 10": "blend"})
PAPER = Variant("ecoc-paper", "ecoc", views={"ecoc-paper": None})

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        _plain("supervised"),
        _plain(BASE, "supervised"),
        ECOC,
        PAPER,
        *(_plain(name) for name in ("sqn", "sa2c", "sdac_sr", "sdac_dc", "prl", "neural_lcb")),
    )
}


def variant_of(name: str) -> Variant:
    """A variant by name; any other trained method has its default settings."""
    if name in VARIANTS:
        return VARIANTS[name]
    known = [*VARIANTS, *(each for each in METHODS if each not in VARIANTS and METHODS[each].is_trained)]
    if name not in known:
        raise InputError(f"unknown method '{name}'; {did_you_mean(name, known)}")
    return _plain(name)


def preset_of(data: Dataset) -> str | None:
    """Name of the preset, for a dataset of the paper; else None."""
    return data.manifest.source if data.manifest.source in PAPER_DATA else None


def _paper_scale(data: Dataset) -> str:
    """Reward scale of the paper: stars and clicks unchanged, amounts of money divided by their mean."""
    return "mean" if len(np.unique(data.rewards[:_SAMPLED])) > _KINDS else "none"


def settings(
    variant: Variant, encoder: str, data: Dataset, *, steps: int, seed: int = 0, threads: int = 1
) -> RunConfig:
    """Complete settings of a run."""
    preset = preset_of(data)
    method: dict[str, Any] = {}
    common: dict[str, Any] = {"encoder": {}, "train": {}}
    if preset is not None:
        common = open_preset(preset, encoder=encoder, method=variant.method)
        method = common["method"]
    train = dict(common["train"])
    if variant.is_paper:
        train["reward_scale"] = train.get("reward_scale", _paper_scale(data))  # the paper chose alpha for it
        method = method or open_preset("paper", encoder=encoder, method="ecoc")["method"]
    elif variant.method == "ecoc" and preset is not None:  # the default losses expect rewards up to 1
        method = open_preset(preset, encoder=encoder, method="supervised")["method"]
        train |= {"reward_scale": "auto", "act_with": "best"}
    if 0 < data.counts.items <= method.get("n2", 0):  # a softmax over all items costs no more and is exact
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
