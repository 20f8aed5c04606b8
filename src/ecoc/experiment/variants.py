"""Variants: methods with settings, one or more rows of a table each. All settings of a fair comparison are here.

ECoC stands in the tables in three named settings, each with its own encoder, losses and training: the default, `paper`
and `released` (files of `runs/presets`). What mixes them has a name of its own. Every variant has controls: the
supervised encoder with the same settings, without and with averaged weights. All variants of a table have the same
validation cases and events of history before a target, and either learn from the same number of targets or train until
validation stops improving, with the same patience. None adds counts to its scores.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ecoc.data.sequences import Dataset
from ecoc.errors import InputError, did_you_mean
from ecoc.methods import METHODS
from ecoc.policies.base import RankBy
from ecoc.runs.config import RunConfig, TrainConfig, compose, merged, open_preset

BASE = "supervised+ema"
PAPER_DATA = ("yelp", "tmall", "rl4rs")  # source formats, which name their presets
VALIDATIONS = 5
BATCH_TARGETS = TrainConfig().batch_targets  # targets per step in which the length of a plan is counted
PATIENCE = 3  # validations without improvement, for every variant that trains until it has converged
_VALIDATION_CASES, _CONVERGED_CASES = 1000, 5000
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
    preset: str = ""  # whose encoder, losses and training it has; none: the defaults
    losses: str = ""  # the preset whose losses it has, with other training
    controls: tuple[str, ...] = ()  # names; the last one differs in the method alone, and decides

    @property
    def has_encoder(self) -> bool:
        """Whether its method uses an encoder."""
        return METHODS[self.method].has_encoder

    @property
    def control(self) -> str:
        """Name of the variant that this one is compared with."""
        return self.controls[-1] if self.controls else BASE

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


def _supervised(name: str, *, preset: str = "", changes: Mapping[str, Any] | None = None, **train: Any) -> Variant:
    return Variant(name, "supervised", changes or {}, train, {name: None}, preset=preset)


def _baseline(name: str) -> Variant:
    return Variant(name, name, train={"ema": _TAU}, views={name: None}, controls=("supervised", BASE, FULL))


FULL = "supervised+ema-full"
ECOC = Variant("ecoc", "ecoc", views={"ecoc, w = 0": "policy", "ecoc, w = 10": "blend"}, controls=("supervised", BASE))
PAPER = Variant(
    "ecoc-paper",
    "ecoc",
    views={"ecoc-paper": None},
    preset="paper",
    controls=("supervised-paper", "supervised-paper+ema"),
)
RELEASED = Variant(
    "ecoc-released",
    "ecoc",
    views={"ecoc-released": None},
    preset="released",
    controls=("supervised-released", "supervised-released+ema", "supervised-released+ema-no-l2"),
)
MIXED = Variant(
    "ecoc-paper-losses", "ecoc", views={"ecoc-paper-losses": None}, losses="paper", controls=("supervised", BASE)
)
"""The paper's losses with our encoder and training."""

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        _supervised("supervised"),
        _supervised(BASE, ema=_TAU),
        ECOC,
        PAPER,
        RELEASED,
        *(_baseline(name) for name in ("sqn", "sa2c", "sdac_sr", "sdac_dc", "prl")),
        Variant("neural_lcb", "neural_lcb", train={"ema": _TAU}, views={"neural_lcb": None}),
    )
}
"""The rows of a table if the call names none."""

_OTHERS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        MIXED,
        _supervised(FULL, changes={"loss": "full"}, ema=_TAU),
        _supervised("supervised-paper", preset="paper"),
        _supervised("supervised-paper+ema", preset="paper", ema=_PAPER_TAU),
        _supervised("supervised-released", preset="released"),
        _supervised("supervised-released+ema", preset="released", ema=_PAPER_TAU),
        _supervised("supervised-released+ema-no-l2", preset="released", ema=_PAPER_TAU, weight_decay=0.0),
        RELEASED.but("ecoc-released-prefix", train={"windows": "prefix"}),  # batches of independent prefixes
    )
}
READINGS: tuple[Variant, ...] = tuple(
    PAPER.but(
        f"ecoc-paper-gradient-{share:g}-{order.replace('_', '-')}",
        changes={"critic_grad": share, "optimise": order},
        train={"act_with": "best"},
    )
    for share in (0.0, 0.1, 1.0)
    for order in ("together", "in_turn")
)
"""What the paper's text leaves open: the share of the critic's gradient that reaches mu, one optimiser or two."""


def variant_of(name: str) -> Variant:
    """A variant by name; any other trained method has its default settings and averaged weights."""
    known = {**VARIANTS, **_OTHERS, **{reading.name: reading for reading in READINGS}}
    if name in known:
        return known[name]
    methods = [each for each in METHODS if each not in known and METHODS[each].is_trained]
    if name not in methods:
        raise InputError(f"unknown method '{name}'; {did_you_mean(name, [*known, *methods])}")
    return _baseline(name)


def with_controls(variants: Iterable[Variant]) -> list[Variant]:
    """The variants, each after its controls, each once."""
    names = [name for variant in variants for name in (*variant.controls, variant.name)]
    return [variant_of(name) for name in dict.fromkeys(names)]


def preset_of(data: Dataset) -> str | None:
    """Name of the preset, for a dataset of the paper; else None."""
    return data.manifest.source if data.manifest.source in PAPER_DATA else None


def _paper_scale(data: Dataset) -> str:
    """Reward scale of the paper: stars and clicks unchanged, amounts of money divided by their mean."""
    return "mean" if len(np.unique(data.rewards[:_SAMPLED])) > _KINDS else "none"


@dataclass(frozen=True)
class Length:
    """How long runs train: `steps` of BATCH_TARGETS targets, or at most so many until validation stops improving."""

    steps: int
    until_converged: bool = False
    validate_every: int = 0  # in steps of BATCH_TARGETS targets, if runs end when they have converged

    def __str__(self) -> str:
        if not self.until_converged:
            return f"{self.steps:,} training steps per run"
        targets = self.validate_every * BATCH_TARGETS
        return (
            f"runs train until {PATIENCE} validations, one per {targets:,} targets, bring no improvement, or for"
            f" {self.steps / self.validate_every:.0f} validations"
        )

    def settings(self, batch_targets: int) -> dict[str, Any]:
        """Settings of a run that learns from another number of targets per step."""

        def own(steps: int) -> int:
            return max(1, round(steps * BATCH_TARGETS / batch_targets))

        every = self.validate_every if self.until_converged else -(-self.steps // VALIDATIONS)
        return {
            "max_steps": own(self.steps),
            "validate_every": own(every),
            "validation_cases": _CONVERGED_CASES if self.until_converged else _VALIDATION_CASES,
            "patience": PATIENCE if self.until_converged else 0,
        }


def settings(
    variant: Variant,
    encoder: str,
    data: Dataset,
    *,
    length: Length,
    min_history: int = 1,
    seed: int = 0,
    threads: int = 1,
) -> RunConfig:
    """Complete settings of a run."""
    names = {"encoder": encoder, "method": variant.method}
    preset = (preset_of(data) or variant.preset) if variant.preset == "paper" else variant.preset
    if preset:
        values = open_preset(preset, **names)
    else:
        own = preset_of(data)  # on the paper's data all encoders have its sizes
        values = {"encoder": open_preset(own, **names)["encoder"]} if own else {}
    if variant.losses:
        values["method"] = open_preset(variant.losses, **names)["method"]
    if variant.losses or preset == "paper":  # the paper chose alpha for its rewards
        values = merged(values, {"train": {"reward_scale": _paper_scale(data)}})
    if 0 < data.counts.items <= values.get("method", {}).get("n2", 0):  # a full softmax costs no more and is exact
        values = merged(values, {"method": {"loss": "full", "n2": 0}})
    values = merged(values, {"method": variant.changes, "train": variant.train})
    batch_targets = values["train"].get("batch_targets", BATCH_TARGETS)
    fixed = {"min_history": min_history, "keep": 1, "counts": "off", "threads": threads, "seed": seed}
    return compose(values, {"train": {**length.settings(batch_targets), **fixed}}, **names)
