"""The command line itself: how a command is declared, and how it answers."""

import inspect
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from ecoc.errors import ArtifactError
from ecoc.storage.trusted import printable, printable_json

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Learn next-item recommenders that optimise long-term reward, from logs alone.",
)


class ReaderGoneError(Exception):
    """Nobody reads the output any more; typer would end with exit code 1 for BrokenPipeError, that of a defect."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command of its name.

    A parameter whose type is a dataclass (`ecoc.cli.options`) stands for the options that are its fields: they are
    declared once and shared by commands.
    """
    groups: dict[str, type[Any]] = {}
    parameters = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation) and isinstance(parameter.annotation, type):
            groups[name] = parameter.annotation
            parameters += _options(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    for parameter in parameters:
        for option in getattr(parameter.annotation, "__metadata__", ()):
            option.readable = False  # not checked by typer: ecoc says in one line what it may not read

    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{option.name: values.pop(option.name) for option in fields(group)})
        try:
            function(**values)
        except BrokenPipeError:
            raise ReaderGoneError from None

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(function.__name__)(call)
    return function


def _options(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=hints[option.name]
        )
        for option in fields(group)
    ]


def _version(value: bool) -> None:
    if value:
        import ecoc

        print(f"ecoc {ecoc.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Learn next-item recommenders that optimise long-term reward, from logs alone."""


def answer(values: dict[str, Any], text: str, as_json: bool) -> None:
    """Print for a machine or for a person. What a dataset or run holds cannot steer the terminal."""
    try:
        written = json.dumps(values, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ArtifactError("the answer holds a number that is not finite; the data or weights are damaged") from None
    if as_json:
        print(printable_json(written))
    else:
        print(printable(text, keep="\n"))
