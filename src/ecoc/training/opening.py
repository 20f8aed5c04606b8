"""What a training step needs besides the method: the windows it reads, and which rows of the item table it updates."""

from ecoc.data.loader import Windows
from ecoc.data.rewards import RewardScaler
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.methods import Method
from ecoc.runs.config import RunConfig

SPARSE_FROM = 50_000  # items; below, updating every row of the table is as fast as finding the touched ones


def open_windows(
    data: Dataset, config: RunConfig, method: Method | type[Method], reward_scaler: RewardScaler | None = None
) -> Windows:
    """The training windows of a run, with what its method needs."""
    settings = config.train
    return Windows(
        data,
        config.encoder.length,
        batch=settings.batch or 0,
        targets=settings.batch_targets,
        mode=settings.windows,
        min_history=settings.min_history,
        seed=settings.seed,
        reward_scaler=reward_scaler,
        terminal_every=settings.terminal_every,
        returns=method.needs_returns,
        next_states=method.needs_next,
    )


def is_sparse(config: RunConfig, method: Method, data: Dataset) -> bool:
    """Whether only touched rows of the item table are updated; a loss or encoder that reads all rows rules it out."""
    can = bool(method.sparse_parameters())
    if config.train.table == "sparse" and not can:
        raise InputError(
            "train.table = sparse: this loss, encoder or exploration reads every row of the table; choose dense or auto"
        )
    return can and (
        config.train.table == "sparse" or (config.train.table == "auto" and data.counts.items > SPARSE_FROM)
    )
