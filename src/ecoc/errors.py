"""The errors: every failure a user can cause has a class, an exit code and a message of one line."""

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class EcocError(Exception):
    """Base of every failure that ecoc explains; the command line returns `exit_code`."""

    exit_code = 1


class InputError(EcocError):
    """An option, a config or a data file is wrong."""

    exit_code = 2


class ArtifactError(EcocError):
    """A prepared dataset, run or bundle is damaged, was changed, or has another format."""

    exit_code = 3


class TrainingError(EcocError):
    """Training diverged."""

    exit_code = 4


class ResourceError(EcocError):
    """Disk space or memory ran out, or a port is taken."""

    exit_code = 5


class Terminated(BaseException):
    """SIGTERM, raised like KeyboardInterrupt so that every `finally` block runs."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; Python, torch and the system report it in different ways."""
    no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or no_memory or "can't allocate memory" in str(error)


_LONGEST_NAME = 60


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Hint for an unknown name: the nearest valid one, otherwise the list of valid names."""
    choices = list(choices)
    folded = {choice.lower(): choice for choice in choices if len(choice) <= _LONGEST_NAME}
    near = get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{folded[near[0]]}'?"
    if not choices:
        return "there is none"
    shown = ", ".join(choice[:_LONGEST_NAME] for choice in choices[:20]) + (", …" if len(choices) > 20 else "")
    return f"there is: {shown}"
