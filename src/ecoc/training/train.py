"""`ecoc.train`: settings, folder, lock and resume around the loop; the result into result.json."""

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from typing import Any, Literal

import torch

from ecoc.arguments import StrPath, as_flag, as_list, as_mapping, as_path, refusal
from ecoc.data.loader import dims_of, open_cases, open_train_sequences
from ecoc.data.rewards import RewardScaler, open_reward_scaler
from ecoc.data.schema import ITEMS
from ecoc.data.sequences import Dataset, open_data
from ecoc.durations import parse_budget
from ecoc.errors import InputError, Terminated, is_out_of_memory
from ecoc.evaluation.metrics import open_metric
from ecoc.methods import Method
from ecoc.methods.build import build_method
from ecoc.policies.base import load_weights
from ecoc.profiling import peak_rss
from ecoc.progress import Callback, ProgressCallback, no_progress
from ecoc.runs.config import RunConfig, compose
from ecoc.runs.derived import as_settings, derive, in_effect
from ecoc.runs.folder import BEST, RESULT, Run
from ecoc.runs.result import CountsChoice, TrainResult
from ecoc.runs.status import resume_command, run_status
from ecoc.storage.atomic import json_bytes, lock, write_whole
from ecoc.storage.checkpoint import load_checkpoint, load_latest, remove_partial, save_checkpoint
from ecoc.storage.trusted import file_sha256, is_there, load_toml
from ecoc.training.budget import Budget
from ecoc.training.counts import add_counts
from ecoc.training.folder import begin_run, check_same_names, check_same_settings, is_begun, make_parent, remove_run
from ecoc.training.loop import Loop, Setup, step_seed
from ecoc.training.metrics_log import MetricsLog
from ecoc.training.opening import is_sparse, open_windows


def train(  # noqa: PLR0913 - one parameter per choice
    data: Dataset | StrPath,
    out: StrPath,
    *,
    method: str | None = None,
    encoder: str | None = None,
    preset: str | None = None,
    config: RunConfig | Mapping[str, Any] | StrPath | None = None,
    budget: str | float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    monitor: str | None = None,
    progress: ProgressCallback | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Train a policy on a prepared dataset, into run folder `out`.

    `method` (default supervised) and `encoder` (default sasrec) are names. `config` is a RunConfig, a mapping with
    sections encoder, method and train, or a TOML file of that shape; it takes precedence over the preset. Without a
    preset, settings that `config` leaves open are derived from the data (`ecoc.runs.derived`) and logged.

    `budget`, such as "10m" or a number of seconds, plans the number of steps and validations so that training ends
    within this processor time per thread.

    With `resume` an interrupted run continues and ends as if it had not been interrupted; a finished one is left as it
    is. With `overwrite` a run that is in the folder is removed first.

    `monitor` (default ndcg@20) is the validation metric that chooses the best weights and stops training early.
    `callbacks` are called after steps, after validations and at the end; see `ecoc.Callback`. Messages go to the logger
    `ecoc.training`. `settings` is the former name of a `config` mapping.
    """
    if settings is not None:
        warnings.warn("train: pass config= in place of settings=", DeprecationWarning, stacklevel=2)
    if all([as_flag(resume, "resume"), as_flag(overwrite, "overwrite")]):
        raise InputError("resume continues a run and overwrite removes it; pass one of them")
    dataset = data if isinstance(data, Dataset) else open_data(data)
    layers = [_values(config), settings or {}, {} if monitor is None else {"train": {"monitor": monitor}}]

    def composed(below: Mapping[str, Any]) -> RunConfig:
        return compose(below, *layers, encoder=encoder, method=method, preset=preset)

    run, chosen, reasons = Run(as_path(out, "out")), composed({}), list[str]()
    limit = None if budget is None else Budget(parse_budget(budget), chosen.train)
    callbacks = as_list(callbacks, "callbacks", "a list of callbacks")
    _check(chosen, callbacks)
    make_parent(run.path.absolute())
    with lock(run.path.absolute()):
        if overwrite:
            remove_run(run)
        is_fresh = not is_begun(run, resume=resume)
        if is_fresh:
            choices = []
            if preset is None and not isinstance(config, RunConfig):
                derived = derive(dataset, encoder=chosen.encoder_name, method=chosen.method_name)
                choices = in_effect(derived, *layers)
            if limit is not None:
                with torch_threads(chosen.train.threads):
                    choices = limit.plan(dataset, choices, composed)
            chosen, reasons = composed(as_settings(choices)), [str(choice) for choice in choices]
            begin_run(run, dataset, chosen)
        else:
            check_same_names(run, encoder=encoder, method=method)
            chosen = check_same_settings(run, dataset, composed(run.config().values()))
            if is_there(run.path / RESULT):
                return run
        try:
            with torch_threads(chosen.train.threads):
                watchers = callbacks if limit is None else [*callbacks, limit]
                _work(run, dataset, chosen, reasons, watchers, progress or no_progress)
        except (KeyboardInterrupt, Terminated) as error:
            error.args = (_interrupted(error, run, dataset),)
            raise
        except Exception as error:
            is_untrained = not any(run.checkpoints.glob("*.json"))
            if is_fresh and is_untrained and (isinstance(error, InputError) or is_out_of_memory(error)):
                shutil.rmtree(run.path, ignore_errors=True)  # settings that cannot work must not block the next try
            raise
    for callback in callbacks:
        callback.on_end(run)
    return run


def _values(config: RunConfig | Mapping[str, Any] | StrPath | None) -> Mapping[str, Any]:
    if config is None:
        return {}
    if isinstance(config, RunConfig):  # none stands for the default, and must not override a plan
        return {
            section: {key: value for key, value in content.items() if value is not None}
            for section, content in config.values().items()
        }
    if isinstance(config, Mapping):
        return as_mapping(config, "config")
    if isinstance(config, str | PathLike):
        return load_toml(as_path(config, "config"))
    raise refusal("config", "a RunConfig, a mapping of settings or the path of a TOML file", config)


def _check(config: RunConfig, callbacks: Sequence[Callback]) -> None:
    try:
        open_metric(config.train.monitor)
    except InputError as error:
        raise InputError(f"train.monitor: {error}") from None
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise refusal("callbacks", "instances of classes derived from ecoc.Callback", callback)


def _interrupted(error: BaseException, run: Run, data: Dataset) -> str:
    """What a signal left behind, and how to continue."""
    ended = "interrupted" if isinstance(error, KeyboardInterrupt) else "terminated"
    status = run_status(run)
    if status.is_finished:
        return f"{ended}; {run.path} is finished"
    return f"{ended}; {run.path} is saved: {status.saved}; resume with: {resume_command(run, str(data.path))}"


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this many threads inside the block, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _work(
    run: Run,
    data: Dataset,
    config: RunConfig,
    reasons: Sequence[str],
    callbacks: Sequence[Callback],
    progress: ProgressCallback,
) -> None:
    settings = config.train
    metrics_log = MetricsLog(run.path, tensorboard=settings.tensorboard)
    for reason in reasons:
        metrics_log.info(reason)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(step_seed(settings.seed, -1))
        method = build_method(config, dims_of(data))
    progress("count", 0, 0)
    reward_scaler = open_reward_scaler(
        data, settings.reward_scale, shuffle=settings.shuffle_rewards, seed=settings.seed
    )
    method.fit_statistics(open_train_sequences(data, reward_scaler))
    values: dict[str, Any] = {
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
        loop = _open_loop(run, data, config, method, reward_scaler, metrics_log, callbacks, progress)
        values |= _fit(loop)
        if settings.counts != "off":
            progress("count", 0, 0)
            values["counts"] = _add_counts(loop, settings.counts)
    else:
        save_checkpoint(run.checkpoints, BEST, method.policy.state_dict(), {"step": 0})
    values |= {
        "weights_sha256": load_checkpoint(run.checkpoints, BEST).sha256,
        "items_sha256": file_sha256(run.path / ITEMS),
        "parameters": sum(p.numel() for p in method.policy.parameters()),
        "peak_rss_bytes": peak_rss(),
        "data": {"path": str(data.path.absolute()), "checksum": data.checksum},
        "dims": asdict(dims_of(data)),
        "feedback": list(data.manifest.feedback.names),
        "reward_unit": 1 / reward_scaler.factor,
    }
    write_whole(run.path / RESULT, [json_bytes(TrainResult.model_validate(values).values())])


def _open_loop(
    run: Run,
    data: Dataset,
    config: RunConfig,
    method: Method,
    reward_scaler: RewardScaler,
    metrics_log: MetricsLog,
    callbacks: Sequence[Callback],
    progress: ProgressCallback,
) -> Loop:
    """The loop of a run, at its newest checkpoint or at its start."""
    settings = config.train
    setup = Setup(
        run=run,
        config=settings,
        method=method,
        windows=open_windows(data, config, method, reward_scaler),
        data=data,
        cases=open_cases(
            data, "validation", min_history=settings.min_history, most=settings.validation_cases, seed=settings.seed
        ),
        metrics_log=metrics_log,
        progress=progress,
        callbacks=callbacks,
        sparse=is_sparse(config, method, data),
    )
    loop = Loop(setup)
    checkpoint = load_latest(run.checkpoints)
    remove_partial(run.checkpoints)
    if checkpoint is not None:
        loop.resume(checkpoint)
        metrics_log.info(f"resumed at step {loop.state.step} of {loop.steps}")
    else:
        metrics_log.rewind(0)
        for line in [*_plan(loop), f"rewards: {reward_scaler}"]:
            metrics_log.info(line)
    return loop


def _fit(loop: Loop) -> dict[str, Any]:
    """Train to the end; the part of the result that the loop knows."""
    state, windows = loop.state, loop.setup.windows
    if not state.is_over:
        loop.fit()
    if state.best is None:
        loop.save_best()
    if loop.method.finalizes:
        loop.finalize()
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


def _add_counts(loop: Loop, setting: float | Literal["auto"]) -> CountsChoice:
    """Add the counts term to the best weights; repeated after a kill, it computes the same."""
    setup, config, policy = loop.setup, loop.config, loop.method.policy
    best = load_checkpoint(loop.run.checkpoints, BEST)
    load_weights(policy, best.tensors, where=str(loop.run.checkpoints / BEST))
    choice = add_counts(
        loop.run,
        setup.data,
        policy,
        setting,
        setup.cases,
        monitor=config.monitor,
        exclude_seen=config.exclude_seen,
    )
    setup.metrics_log.info(f"counts: {choice}")
    return choice


def _plan(loop: Loop) -> list[str]:
    """What training will do, with everything that was chosen automatically."""
    windows, config, cases = loop.setup.windows, loop.config, loop.setup.cases
    patience = f"stops after {config.patience} validations without improvement" if config.patience else "no early stop"
    return [
        f"learns from {windows.targets:,} targets per epoch, in {windows.windows:,} windows ({windows.mode}), "
        f"{windows.batch:,} per step: {windows.steps:,} steps per epoch, {loop.steps:,} in total",
        *(f"{name}: {text}" for name, text in loop.method.describe().items()),
        f"item table: {'only touched rows' if loop.setup.sparse else 'every row'} updated each step",
        f"validates on {len(cases):,} held-out events every {loop.validate_every:,} steps; {patience}"
        if len(cases)
        else "no sequences are held out for validation: trains to the end and keeps the last weights"
        + (", averaged" if loop.state.best_source == "ema" else ""),
    ]
