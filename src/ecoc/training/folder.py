"""The run folder around a training: whether it may be written, how it begins, and what a resume must agree with."""

import shutil
from pathlib import Path

from ecoc.data.schema import ITEMS
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError, InputError, ResourceError
from ecoc.runs.config import RunConfig
from ecoc.runs.folder import CHECKPOINTS, CONFIG, FINGERPRINT, METRICS, Run, is_run
from ecoc.storage.atomic import write_whole
from ecoc.storage.trusted import LARGEST_FILE, open_regular, open_to_append, read_bytes

_LEAST_ITEMS = 2
_LONGEST_FINGERPRINT = 1 << 10  # bytes
_PIECE = 1 << 20


def make_parent(path: Path) -> None:
    """Make the folder that holds `path`."""
    if path.is_symlink() and not path.exists():
        raise InputError(f"{path}: a link that leads nowhere; remove it or choose another folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: {error.strerror}; choose another folder") from None


def is_begun(run: Run, *, resume: bool) -> bool:
    """Whether the folder holds a run to resume; a folder that may not be written is an error."""
    if not run.path.exists() or (run.path.is_dir() and not any(run.path.iterdir())):
        return False
    if _is_half_begun(run.path):
        return False
    if not is_run(run.path):
        raise InputError(f"{run.path}: holds files that are no run; choose another folder")
    if not resume:
        raise InputError(
            f"{run.path}: a run is there already; choose another folder, pass --resume to continue it"
            " or --overwrite to replace it"
        )
    return True


def _is_half_begun(path: Path) -> bool:
    """Whether a process died in `begin_run`: the folder holds what it writes, and no settings yet."""
    if not (path / CHECKPOINTS).is_dir() or any((path / CHECKPOINTS).iterdir()):
        return False
    whole = (CONFIG, ITEMS, FINGERPRINT)  # written aside first
    names = {entry.name for entry in path.iterdir() if not any(entry.match(f"{name}*.partial") for name in whole)}
    return names <= {CHECKPOINTS, ITEMS, FINGERPRINT, METRICS}


def remove_run(run: Run) -> None:
    """Remove the files of a run; a folder that holds no run is left as it is."""
    if not is_run(run.path):
        return
    try:
        for entry in run.path.iterdir():
            if entry.name == CONFIG:
                continue  # last: until then the folder is a run, so a removal that was killed can be repeated
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (run.path / CONFIG).unlink()
    except OSError as error:
        raise ResourceError(f"{run.path}: {error.strerror}; cannot be replaced, choose another folder") from error


def begin_run(run: Run, data: Dataset, config: RunConfig) -> None:
    """Write what a run starts with; the folder is a run once its settings are there."""
    if data.counts.items < _LEAST_ITEMS:
        raise InputError(f"{data.path}: has {data.counts.items} item; at least {_LEAST_ITEMS} are needed to rank")
    try:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
        with open_regular(data.path / ITEMS, largest=LARGEST_FILE, folder=data.path) as items:
            digest = write_whole(run.path / ITEMS, iter(lambda: items.read(_PIECE), b""))
        if digest != data.manifest.files[ITEMS].sha256:
            raise ArtifactError(f"{data.path / ITEMS}: changed since the dataset was opened; prepare again")
        write_whole(run.path / FINGERPRINT, [f"{data.checksum}\n".encode()])
        open_to_append(run.path / METRICS).close()
        write_whole(run.path / CONFIG, [config.toml().encode()])  # last: it makes the folder a run
    except OSError as error:
        raise ResourceError(f"{run.path}: {error.strerror}; free space or choose another folder") from error


def check_same_names(run: Run, *, encoder: str | None, method: str | None) -> None:
    """Refuse to resume a run with another encoder or method than it began with."""
    config = run.config()
    for section, name, old in (("encoder", encoder, config.encoder_name), ("method", method, config.method_name)):
        if name is not None and name != old:
            raise InputError(f"{run.path}: began with {section} {old}, not {name}; resume without settings")


def check_same_settings(run: Run, data: Dataset, wanted: RunConfig) -> RunConfig:
    """The settings of the run to resume; other settings or other data than it began with are an error."""
    config = run.config()
    for section, content in wanted.values().items():
        for key, value in content.items():
            old = config.values()[section].get(key)
            if old != value and (section, key) != ("train", "threads"):
                raise InputError(
                    f"{run.path}: began with {section}.{key} = {old}, not {value}; resume without settings"
                )
    try:
        fingerprint = read_bytes(run.path / FINGERPRINT, largest=_LONGEST_FINGERPRINT).decode("ascii").strip()
    except (ArtifactError, UnicodeDecodeError):
        raise ArtifactError(f"{run.path / FINGERPRINT}: not a readable checksum; train again") from None
    if fingerprint != data.checksum:
        raise InputError(f"{run.path}: began with other data than {data.path}; give the same prepared dataset")
    return config
