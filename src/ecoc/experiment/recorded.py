"""Settings as stored jobs record them: as version 0.1 wrote them wherever they mean the same, so its jobs are found."""

from typing import Any

from ecoc.runs.config import RunConfig

_FORMER_OPTIONS: dict[str, dict[str, Any]] = {
    "ecoc": {"awr": 0.0, "critic_dropout": None, "kappa": 0.0, "reg_weights": "grad"},
}
"""Options that methods had in version 0.1, with the defaults that are now fixed: its jobs are found by them."""
_LATER_OPTIONS: dict[str, dict[str, Any]] = {
    "train": {"counts": "off", "exclude_seen": False, "monitor": "ndcg@20"},
    "method": {"optimise": "together"},
}
"""Options that version 0.1 did not have, by section, with the defaults that it had fixed."""
_NOT_OF_STEPS = ("max_steps", "validate_every")


def recorded(config: RunConfig) -> dict[str, Any]:
    """Settings of a run as JSON, as version 0.1 wrote them wherever they mean the same."""
    values = config.values()
    for section, later in _LATER_OPTIONS.items():
        values[section] = {k: v for k, v in values[section].items() if k not in later or v != later[k]}
    values["method"] = {**_FORMER_OPTIONS.get(values["method"]["name"], {}), **values["method"]}
    return values


def step_settings(config: RunConfig) -> dict[str, Any]:
    """Settings that the cost of a training step depends on, as JSON."""
    values = recorded(config)
    values["train"] = {key: value for key, value in values["train"].items() if key not in _NOT_OF_STEPS}
    return values
