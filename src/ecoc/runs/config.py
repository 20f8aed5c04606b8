"""The settings of a run, composed of encoder, method and training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from ecoc.config import Config
from ecoc.data.loader import Mode
from ecoc.data.schema import GREATEST_REWARD
from ecoc.encoders import ENCODERS, EncoderConfig
from ecoc.errors import InputError, did_you_mean
from ecoc.methods import METHODS, MethodConfig
from ecoc.policies.counts import LARGEST_COUNTS_WEIGHT
from ecoc.runs.presets import preset_file, presets
from ecoc.storage.trusted import load_toml


class TrainConfig(Config):
    """How a run is trained."""

    max_epochs: int = Field(30, ge=1, le=1_000_000, description="passes over the training windows")
    max_steps: int | None = Field(None, ge=1, description="steps to plan for, in place of max_epochs")
    batch: int | None = Field(
        None, ge=1, le=1_000_000, description="windows per step; none: as many as batch_targets needs"
    )
    batch_targets: int = Field(700, ge=1, le=10_000_000, description="targets per step when batch is not given")
    windows: Mode = Field(
        "random",
        description="random: one window per sequence and epoch; tile: every event once; shifted: the same with borders"
        " that move from epoch to epoch; prefix: one window per target",
    )
    min_history: int = Field(
        1, ge=1, le=10_000, description="fewest events before a target, in training and validation"
    )
    lr: float = Field(4e-3, gt=0, le=10, description="highest learning rate")
    warmup: int = Field(100, ge=0, description="steps over which the learning rate rises")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="learning rate after the warm-up")
    final_lr: float = Field(0.02, ge=0, le=1, description="share of lr that the cosine ends at")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the gradient's mean")
    beta2: float = Field(0.98, ge=0, lt=1, description="Adam's decay of its square")
    weight_decay: float = Field(0.0, ge=0, le=1, description="L2 penalty added to the gradient")
    clip: float = Field(5.0, ge=0, description="largest norm of a step's gradient; 0: no limit")
    ema: float = Field(0.0, ge=0, le=1, description="rate at which averaged weights follow; 0: no averaging")
    table: Literal["auto", "dense", "sparse"] = Field(
        "auto", description="item rows that a step updates: all (dense) or the touched ones (sparse)"
    )
    validate_every: int | None = Field(None, ge=1, description="steps between validations; none: once per epoch")
    validation_cases: int = Field(5000, ge=0, description="held-out events that a validation ranks; 0: all")
    exclude_seen: bool = Field(
        False, description="validation, and evaluation by default, leave out the items of a user's past"
    )
    patience: int = Field(
        5, ge=0, description="stops after this many validations without improvement; 0: no early stop"
    )
    monitor: str = Field("ndcg@20", max_length=200, description="validation metric that chooses the best weights")
    keep: int = Field(2, ge=1, le=1000, description="checkpoints to keep besides the best")
    checkpoint_seconds: float = Field(60.0, gt=0, description="most seconds between two checkpoints")
    log_every: int = Field(50, ge=1, description="steps per line of metrics.jsonl")
    tensorboard: bool = Field(False, description="also write TensorBoard files; needs ecoc[track]")
    reward_scale: Literal["auto", "none", "mean", "max"] | Annotated[float, Field(gt=0, le=GREATEST_REWARD)] = Field(
        "auto",
        description="divides rewards: by none, by their mean or max size in training, or by a number; auto: by max;"
        " if max exceeds ten times the 99.9th percentile, by that percentile, and larger rewards are clipped to it",
    )
    act_with: Literal["best", "ema", "online"] = Field(
        "best", description="weights of the model: averaged, online, or those that validation prefers"
    )
    counts: Literal["auto", "off"] | Annotated[float, Field(ge=0, le=LARGEST_COUNTS_WEIGHT)] = Field(
        "auto",
        description="weight of item-to-item counts in the scores of the trained policy; auto: chosen on validation, and"
        " 0 unless it improves the monitored metric significantly",
    )
    shuffle_rewards: bool = Field(False, description="a control experiment: shuffle rewards among the training events")
    terminal_every: int = Field(
        0, ge=0, description="also end an episode after every this many events; the paper's released code uses 5; 0: no"
    )
    threads: int = Field(
        1, ge=1, le=1024, description="processor threads; small steps gain little from a second thread"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="seed of everything random")


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on besides its data."""

    encoder_name: str
    encoder: EncoderConfig
    method_name: str
    method: MethodConfig
    train: TrainConfig

    @classmethod
    def build(cls, values: Mapping[str, Any], where: str = "config") -> "RunConfig":
        """From sections encoder, method and train; the first two name their kind under `name`."""
        unknown = set(values) - {"encoder", "method", "train"}
        if unknown:
            name = min(unknown)
            raise InputError(f"{where}: unknown section '{name}'; {did_you_mean(name, ['encoder', 'method', 'train'])}")
        sections = {name: _section(values, name, where) for name in ("encoder", "method", "train")}
        encoder_name = str(sections["encoder"].pop("name", "sasrec"))
        method_name = str(sections["method"].pop("name", "supervised"))
        return cls(
            encoder_name,
            ENCODERS[encoder_name].Config.build(sections["encoder"], where=f"{where}: encoder {encoder_name}"),
            method_name,
            METHODS[method_name].Config.build(sections["method"], where=f"{where}: method {method_name}"),
            TrainConfig.build(sections["train"], where=f"{where}: train"),
        )

    def values(self) -> dict[str, Any]:
        """All settings, as `build` takes them."""
        return {
            "encoder": {"name": self.encoder_name, **self.encoder.model_dump(mode="json")},
            "method": {"name": self.method_name, **self.method.model_dump(mode="json")},
            "train": self.train.model_dump(mode="json"),
        }

    def toml(self) -> str:
        """The effective settings as a file that reproduces the run."""
        lines = []
        for section, content in self.values().items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in content.items() if value is not None]
            lines.append("")
        return "\n".join(lines)


def _section(values: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    section = values.get(name, {})
    if not isinstance(section, Mapping):
        raise InputError(f"{where}: '{name}' is a section, write {name}.key = value; found {section!r:.80}")
    return dict(section)


def names(
    *layers: Mapping[str, Any], encoder: str | None = None, method: str | None = None
) -> dict[Literal["encoder", "method"], str]:
    """The names of the encoder and the method: those given, else those in the strongest layer that has one."""
    chosen = {"encoder": "sasrec", "method": "supervised"}
    for layer in layers:
        _section(layer, "train", "config")
        chosen = {key: str(_section(layer, key, "config").get("name", name)) for key, name in chosen.items()}
    return {"encoder": encoder or chosen["encoder"], "method": method or chosen["method"]}


def compose(
    *layers: Mapping[str, Any], encoder: str | None = None, method: str | None = None, preset: str | None = None
) -> RunConfig:
    """Settings in order of strength: defaults < preset < layers, left to right; `encoder` and `method` are names."""
    chosen = names(*layers, encoder=encoder, method=method)
    values: dict[str, Any] = open_preset(preset, **chosen) if preset else {}
    for layer in layers:
        values = merged(values, layer)
    return RunConfig.build(merged(values, {key: {"name": name} for key, name in chosen.items()}))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which those of `above` take precedence, key by key."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def open_preset(name: str, *, encoder: str, method: str) -> dict[str, Any]:
    """A preset's settings for an encoder and a method: the general ones, then those of this encoder or method."""
    if not isinstance(name, str) or name not in presets():
        raise InputError(f"unknown preset {name!r:.60}; {did_you_mean(str(name), presets())}")
    content = load_toml(preset_file(name))
    values = {key: content.get(key, {}) for key in ("encoder", "method", "train")}
    values["encoder"] = merged(values["encoder"], content.get("encoders", {}).get(encoder, {}))
    values["method"] = merged(values["method"], content.get("methods", {}).get(method, {}))
    return values
