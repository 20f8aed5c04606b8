"""The `ecoc` command: thin shells over the Python functions, and errors as exit codes."""

import os
import sys
import traceback

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
from ecoc.cli.app import app
from ecoc.cli.console import Interrupted, listen_for_sigterm
from ecoc.errors import EcocError, Terminated, is_out_of_memory
from ecoc.storage.trusted import printable

__all__ = ["app", "main"]

_OUT_OF_MEMORY = (
    "out of memory; pass a smaller --memory (prepare), encoder.dim or train.batch (train), or use a larger machine"
)


def main() -> None:
    """Run the command line; every failure becomes one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the caller
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin make a busy machine several times slower
    listen_for_sigterm()
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a reader that went away is no news; at exit it would be a traceback
    except EcocError as error:
        _fail(error, str(error), error.exit_code)
    except (KeyboardInterrupt, Interrupted) as error:
        _fail(error, str(error) or "interrupted", 130)
    except Terminated as error:
        _fail(error, str(error) or "terminated", 143)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at exit
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


def _fail(error: BaseException, message: str, code: int) -> None:
    if "--debug" in sys.argv:
        traceback.print_exception(error)
    if sys.stderr is not None:
        print(printable(" ".join(message.split())), file=sys.stderr)
    sys.exit(code)
