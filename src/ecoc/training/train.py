"""`ecoc.train`: settings, folder, lock and resume around the loop; what came of it into result.json."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ecoc.config import load_toml
from ecoc.data.loader import Windows, dims_of, open_cases, open_train_sequences
from ecoc.data.rewards import RewardScaler, open_reward_scaler
from ecoc.data.schema import ITEMS
from ecoc.data.sequences import Dataset, open_data
from ecoc.encoders import Encoder
from ecoc.errors import ArtifactError, InputError, ResourceError, is_out_of_memory
from ecoc.methods import Method
from ecoc.methods.build import build_method
from ecoc.profiling import peak_rss
from ecoc.progress import ProgressCallback, no_progress
from ecoc.runs.config import RunConfig, compose
from ecoc.runs.folder import BEST, CHECKPOINTS, CONFIG, FINGERPRINT, METRICS, RESULT, Run, is_run
from ecoc.storage.atomic import file_sha256, json_bytes, lock, write_whole
from ecoc.storage.checkpoint import load_checkpoint, load_latest, remove_partial, save_checkpoint
from ecoc.training.loop import Loop, step_seed
from ecoc.training.metrics_log import MetricsLog

SPARSE_FROM = 50_000  # items; below, updating every row of the table is as fast as finding the touched ones
_LEAST_ITEMS = 2


def train(  # noqa: PLR0913 - one parameter a choice
    data: Dataset | str | PathLike[str],
    out: str | PathLike[str],
    *,
    method: str | None = None,
    encoder: str | None = None,
    preset: str | None = None,
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    resume: bool = False,
    progress: ProgressCallback | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Train a policy on a prepared dataset, into run folder `out`.

    `config` is a TOML file or a mapping with sections encoder, method and train; `settings`, of the same shape, go
    before it. With `resume` an interrupted run goes on and ends as if it had not been; a finished one is left as it is.
    """
    dataset = data if isinstance(data, Dataset) else open_data(data)
    base = config if isinstance(config, Mapping) else load_toml(Path(config)) if config is not None else {}
    run = Run(Path(out))

    def composed(below: Mapping[str, Any]) -> RunConfig:
        return compose(below, base, settings or {}, encoder=encoder, method=method, preset=preset)

    chosen = composed({})
    _make_parent(run.path.absolute())
    with lock(run.path.absolute()):
        is_fresh = not _is_to_resume(run, resume)
        if not is_fresh:
            _same_names(run, encoder=encoder, method=method)
            chosen = _agreed(run, dataset, composed(run.config().values()))
            if (run.path / RESULT).is_file():
                return run
        else:
            _begin(run, dataset, chosen)
        try:
            with _threads(chosen.train.threads):
                _work(run, dataset, chosen, progress or no_progress, say)
        except Exception as error:
            if is_fresh and (isinstance(error, InputError) or is_out_of_memory(error)):
                shutil.rmtree(run.path, ignore_errors=True)  # settings that cannot be: out of the way of the next try
            raise
    return run


def _is_to_resume(run: Run, resume: bool) -> bool:
    if not run.path.exists() or (run.path.is_dir() and not any(run.path.iterdir())):
        return False
    if _is_half_begun(run.path):
        return False
    if not is_run(run.path):
        raise InputError(f"{run.path}: holds files that are no run; choose another folder")
    if not resume:
        raise InputError(f"{run.path}: a run is there already; choose another folder or pass --resume to go on with it")
    return True


def _is_half_begun(path: Path) -> bool:
    """Whether a process died while it made this folder: then it holds what `_begin` writes, and no settings yet."""
    if not (path / CHECKPOINTS).is_dir() or any((path / CHECKPOINTS).iterdir()):
        return False
    return {entry.name for entry in path.iterdir()} <= {CHECKPOINTS, ITEMS, FINGERPRINT, METRICS, f"{CONFIG}.partial"}


def _same_names(run: Run, *, encoder: str | None, method: str | None) -> None:
    config = run.config()
    for section, name, old in (("encoder", encoder, config.encoder_name), ("method", method, config.method_name)):
        if name is not None and name != old:
            raise InputError(f"{run.path}: began with {section} {old}, not {name}; resume without settings")


def _agreed(run: Run, data: Dataset, asked: RunConfig) -> RunConfig:
    """The settings of the run to resume; other settings or other data than it began with are an error."""
    config = run.config()
    for section, content in asked.values().items():
        for key, value in content.items():
            old = config.values()[section].get(key)
            if old != value and (section, key) != ("train", "threads"):
                raise InputError(
                    f"{run.path}: began with {section}.{key} = {old}, not {value}; resume without settings"
                )
    try:
        fingerprint = (run.path / FINGERPRINT).read_text().strip()
    except OSError as error:
        raise ArtifactError(f"{run.path / FINGERPRINT}: {error.strerror}; train again") from None
    if fingerprint != data.checksum:
        raise InputError(f"{run.path}: began with other data than {data.path}; give the same prepared dataset")
    return config


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: {error.strerror}; choose another folder") from None


def _begin(run: Run, data: Dataset, config: RunConfig) -> None:
    if data.counts.items < _LEAST_ITEMS:
        raise InputError(f"{data.path}: has {data.counts.items} item; at least {_LEAST_ITEMS} are needed to rank")
    try:
        (run.path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data.path / ITEMS, run.path / ITEMS)
        (run.path / FINGERPRINT).write_text(data.checksum + "\n")
        (run.path / METRICS).touch()
        write_whole(run.path / CONFIG, [config.toml().encode()])  # last: it makes the folder a run
    except OSError as error:
        raise ResourceError(f"{run.path}: {error.strerror}; free space or choose another folder") from error


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _work(run: Run, data: Dataset, config: RunConfig, watch: ProgressCallback, say: Callable[[str], None]) -> None:
    settings = config.train
    journal = MetricsLog(run.path, tensorboard=settings.tensorboard)

    def tell(text: str) -> None:
        journal.say(text)
        say(text)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(step_seed(settings.seed, -1))
        method = build_method(config, dims_of(data))
    watch("count", 0, 0)
    reward_scaler = open_reward_scaler(
        data, settings.reward_scale, shuffle=settings.shuffle_rewards, seed=settings.seed
    )
    method.fit_statistics(open_train_sequences(data, reward_scaler))
    facts: dict[str, Any] = {
        "run": str(run.path),
        "method": config.method_name,
        "encoder": config.encoder_name if method.is_trained and method.has_encoder else None,
        "items": data.counts.items,
        "epochs": 0,
        "best_epoch": 0,
        "steps": 0,
        "transitions": 0,
        "seconds": 0.0,
        "transitions_per_second": 0.0,
        "validation": None,
    }
    if method.is_trained:
        facts |= _train(run, data, config, method, reward_scaler, journal, watch, tell)
    else:
        save_checkpoint(run.checkpoints, BEST, method.policy.state_dict(), {"step": 0})
    best = load_checkpoint(run.checkpoints, BEST)
    facts |= {
        "weights_sha256": best.sha256,
        "items_sha256": file_sha256(run.path / ITEMS),
        "parameters": sum(p.numel() for p in method.policy.parameters()),
        "peak_rss_bytes": peak_rss(),
        "data": {"path": str(data.path.absolute()), "checksum": data.checksum},
        "dims": asdict(dims_of(data)),
        "feedback": list(data.manifest.feedback.names),
        "reward_unit": 1 / reward_scaler.factor,
    }
    write_whole(run.path / RESULT, [json_bytes(facts)])


def _train(
    run: Run,
    data: Dataset,
    config: RunConfig,
    method: Method,
    reward_scaler: RewardScaler,
    journal: MetricsLog,
    watch: ProgressCallback,
    say: Callable[[str], None],
) -> dict[str, Any]:
    settings = config.train
    if settings.windows == "prefix" and method.needs_next:
        raise InputError("train.windows = prefix: its windows end with the target, and this method needs what follows")
    windows = open_windows(data, config, reward_scaler, returns=method.needs_returns)
    cases = open_cases(
        data, "validation", min_history=settings.min_history, most=settings.validation_cases, seed=settings.seed
    )
    sparse = is_sparse(config, method, data)
    if sparse:
        for module in method.modules():
            if isinstance(module, Encoder):
                module.sparse = True
    loop = Loop(run, settings, method, windows, data, cases, journal, watch, say, sparse=sparse)
    found = load_latest(run.checkpoints)
    remove_partial(run.checkpoints)
    if found is not None:
        loop.resume(found)
        say(f"resumed at step {loop.state.step} of {loop.steps}")
    else:
        journal.rewind(0)
        for line in [*_plan(loop, cases, sparse), f"rewards: {reward_scaler}"]:
            say(line)
    if not loop.state.is_over:
        loop.fit()
    state = loop.state
    if state.best is None:
        loop.save_best()
    if method.finalizes:
        loop.complete()
    return {
        "epochs": state.step / windows.steps,
        "best_epoch": (state.best_step or state.step) / windows.steps,
        "best_weights": state.best_source,
        "steps": state.step,
        "transitions": state.transitions,
        "seconds": state.seconds,
        "transitions_per_second": state.transitions / max(state.seconds, 1e-9),
        "validation": state.best,
        "parts": loop.clock.seconds,
    }


def open_windows(
    data: Dataset, config: RunConfig, reward_scaler: RewardScaler | None = None, *, returns: bool = False
) -> Windows:
    """The windows a run learns from."""
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
        returns=returns,
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


def _plan(loop: Loop, cases: Any, sparse: bool) -> list[str]:
    """What will be done, with everything that was chosen automatically."""
    windows, config = loop.windows, loop.config
    return [
        f"learns from {windows.targets:,} targets an epoch, in {windows.windows:,} windows ({windows.mode}), "
        f"{windows.batch:,} a step: {windows.steps:,} steps an epoch, {loop.steps:,} in all",
        *(f"{name}: {what}" for name, what in loop.method.describe().items()),
        f"item table: {'only touched rows' if sparse else 'every row'} updated each step",
        f"judged on {len(cases):,} held-out events every {loop.every:,} steps; {config.patience} without gain end it"
        if len(cases)
        else "no sequences are held out for validation: trains to the end and keeps the last weights"
        + (", averaged" if loop.state.best_source == "ema" else ""),
    ]
