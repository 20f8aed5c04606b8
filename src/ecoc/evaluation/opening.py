"""Models and datasets as callers give them: opened, and checked to belong together."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ecoc.arguments import as_flag, as_list
from ecoc.data.sequences import Dataset, open_data
from ecoc.errors import InputError
from ecoc.model import Model, load
from ecoc.policies.base import RankBy


def open_models(
    models: Sequence[Model | str | PathLike[str]], rank_by: RankBy | None, *, w: float | None, m: int | None
) -> list[Model]:
    """Models in the ranking mode asked for; those without a critic keep theirs, unless none of them has a critic."""
    opened = load_all(models)
    if not any(model.policy.has_critic for model in opened):
        opened[0].ranked_by(rank_by, w=w, m=m)  # raises if the mode needs a critic
    return [model.ranked_by(rank_by, w=w, m=m) if model.policy.has_critic else model for model in opened]


def load_all(models: Sequence[Model | str | PathLike[str]]) -> list[Model]:
    """Models, and those of run folders; a single one may be given by itself."""
    is_single = isinstance(models, Model | str | PathLike)
    given: list[Any] = [models] if is_single else as_list(models, "runs", "a list of run folders or models")
    if not given:
        raise InputError("no run given; name at least one")
    return [model if isinstance(model, Model) else load(model) for model in given]


def data_of(model: Model, data: Dataset | str | PathLike[str] | None) -> Dataset:
    """The given dataset, or the one the run was trained on if it is still in its place."""
    if data is None:
        trained_on = model.run.result.data
        data = trained_on.path if trained_on is not None else ""
        if not Path(data).is_dir():
            raise InputError(f"{model.name}: its dataset is no longer at '{data}'; say where it is with --data")
    dataset = data if isinstance(data, Dataset) else open_data(data)
    _check_same_data(model, dataset)
    return dataset


def common_data(models: Sequence[Model], data: Dataset | str | PathLike[str] | None) -> Dataset:
    """The dataset of several runs; a run that was trained on another is refused."""
    dataset = data_of(models[0], data)
    for model in models[1:]:
        _check_same_data(model, dataset)
    return dataset


def _check_same_data(model: Model, data: Dataset) -> None:
    trained_on = model.run.result.data
    if trained_on is None or trained_on.checksum != data.checksum:
        raise InputError(f"{model.name}: was trained on other data than {data.path}; judge it on its own dataset")


def excludes_seen(models: Sequence[Model], exclude_seen: bool | None) -> bool:
    """Whether to leave out the items of a user's past: as asked for, or as validation did when the models trained."""
    if exclude_seen is not None:
        return as_flag(exclude_seen, "exclude_seen")
    settings = {model.config.train.exclude_seen for model in models}
    if len(settings) > 1:
        raise InputError("the runs differ in train.exclude_seen; pass --exclude-seen or --keep-seen for all of them")
    return settings.pop()
