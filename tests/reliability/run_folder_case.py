"""Datasets, a finished run and ways to change its files, for the tests of what can be wrong with a run folder."""

import json
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from forked import Done, Forks
from safetensors.torch import load_file, save_file

import ecoc

SETTINGS = ["encoder.dim=8", "encoder.length=10", "train.batch=16", "train.max_steps=12", "train.log_every=1"]
SETTINGS += ["train.validate_every=3", "train.validation_cases=100"]
UNREADABLE = (2, 3)
Break = Callable[[Path], object]


def words(data: Path, run: object, *more: object) -> list[object]:
    pairs = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", data, "-o", run, "--threads", 1, "--quiet", *pairs, *more]


@cache
def prepared(base: Path) -> Path:
    """A world's dataset, made once in a folder."""
    return ecoc.prepare("world:small", base / "run-folder-data", format="world", events=4_000).path


@cache
def prepared_other(base: Path) -> Path:
    """Another dataset with as many items, under other names."""
    log, rows = base / "other-log.csv", [f"u{k % 90},other{k * 7 % 200},{k}" for k in range(4_000)]
    log.write_text("user,item,time\n" + "\n".join(rows))
    return ecoc.prepare(log, base / "run-folder-other-data", user="user", item="item", time="time").path


def finished_run(forks: Forks, base: Path) -> Path:
    """Trained once in a folder; tests copy it."""
    run = base / "run-folder-finished"
    if not (run / "result.json").exists():
        assert forks.run(*words(prepared(base), run)).code == 0
    return run


def is_told(done: Done, codes: tuple[int, ...]) -> bool:
    """An exit code of these and one line that is not about the inside of ecoc."""
    lines = done.stderr.splitlines()
    return done.code in codes and len(lines) == 1 and "internal error" not in lines[0] and lines[0].strip() != ""


def remake(folder: Path, name: str, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint and make its checksum fit again, as one who means harm would."""
    tensors = load_file(folder / f"{name}.safetensors")
    change(tensors)
    save_file(tensors, folder / f"{name}.safetensors")
    refit(folder, name)


def refit(folder: Path, name: str) -> None:
    state = json.loads((folder / f"{name}.json").read_bytes())
    state["sha256"] = sha256((folder / f"{name}.safetensors").read_bytes()).hexdigest()
    (folder / f"{name}.json").write_text(json.dumps(state))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads(path.read_bytes())
    change(found)
    path.write_text(json.dumps(found))
