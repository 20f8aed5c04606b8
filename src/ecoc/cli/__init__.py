"""The `ecoc` command: thin shells over the Python functions, and errors as exit codes."""

import os
import sys
import traceback
from typing import TextIO

from ecoc.cli import (  # noqa: F401 - each module declares its command
    compare,
    demo,
    evaluate,
    export,
    info,
    normtest,
    prepare,
    recommend,
    report,
    reproduce,
    serve,
    simulate,
    train,
)
from ecoc.cli.app import ReaderGoneError, app
from ecoc.cli.console import Interrupted, listen_for_sigterm
from ecoc.errors import EcocError, Terminated, is_out_of_memory
from ecoc.storage.trusted import printable

__all__ = ["app", "main"]

_OUT_OF_MEMORY = (
    "out of memory; pass a smaller --memory (prepare), encoder.dim or train.batch (train), or use a larger machine"
)


def main() -> None:
    """Run the command line; every failure becomes one line and an exit code."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin make a busy machine several times slower
    listen_for_sigterm()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a reader that went away is no news; at exit it would be a traceback
    except EcocError as error:
        _fail(error, str(error), error.exit_code)
    except (KeyboardInterrupt, Interrupted) as error:
        _fail(error, str(error) or "interrupted", 130)
    except Terminated as error:
        _fail(error, str(error) or "terminated", 143)
    except (BrokenPipeError, ReaderGoneError):
        _discard(sys.stdout)
        sys.exit(0)
    except Exception as error:
        if is_out_of_memory(error):
            _fail(error, _OUT_OF_MEMORY, 5)
        if isinstance(error, PermissionError):
            _fail(error, f"{error.filename or 'a file'}: permission denied; give yourself access to it", 2)
        if isinstance(error, OSError):
            _fail(error, f"{error.filename or 'a file'}: {error.strerror or error}; check the disk, then try again", 5)
        message = f"internal error: {type(error).__name__}: {error}; please report it, with the output of --debug"
        _fail(error, message, 1)


def _open_streams() -> None:
    """Open what the caller closed, to nowhere: otherwise a file would get the number of a stream, and its output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - until the process ends


def _discard(stream: TextIO) -> None:
    """Lead a stream to nowhere, or the interpreter would complain at exit about what it could not write."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail(error: BaseException, message: str, code: int) -> None:
    try:
        if "--debug" in sys.argv:
            traceback.print_exception(error)
        print(printable(" ".join(message.split())), file=sys.stderr, flush=True)
    except BrokenPipeError:
        _discard(sys.stderr)
    sys.exit(code)
