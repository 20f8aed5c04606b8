"""The error tree: every failure a user can cause has a class, an exit code and one clear line."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class EcocError(Exception):
    """Any failure ecoc explains itself; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(EcocError):
    """A flag, a config or a data file is wrong."""

    exit_code = 2


class ArtifactError(EcocError):
    """A prepared dataset, run or bundle is broken, foreign or tampered with."""

    exit_code = 3


class TrainingError(EcocError):
    """Training diverged."""

    exit_code = 4


class ResourceError(EcocError):
    """Disk, memory or a port ran out."""

    exit_code = 5


class Terminated(BaseException):
    """SIGTERM, raised like KeyboardInterrupt so that everything cleans up after itself."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; torch and the system have their own ways to say so."""
    no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or no_memory or "can't allocate memory" in str(error)


_LONGEST_NAME = 60


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Hint for an unknown name: the nearest right one, or all of them when they are few."""
    choices = list(choices)
    folded = {choice.lower(): choice for choice in choices if len(choice) <= _LONGEST_NAME}
    near = get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{folded[near[0]]}'?"
    if not choices:
        return "there is none"
    shown = ", ".join(choice[:_LONGEST_NAME] for choice in choices[:20]) + (", …" if len(choices) > 20 else "")
    return f"there is: {shown}"
