import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import FunctionType

import pytest
from pydantic import Field, ValidationError

import ecoc
from ecoc import errors
from ecoc.config import Config, parse_overrides
from ecoc.errors import InputError, did_you_mean
from ecoc.registry import Registry
from ecoc.storage.trusted import load_toml

HEAVY = ("torch", "duckdb", "pyarrow", "gymnasium", "typer")


class Inner(Config):
    """Settings inside settings."""

    alpha: float = 5.0
    name: str = "gru"


class Outer(Config):
    """Settings."""

    width: int = Field(64, gt=0, description="width of it")
    inner: Inner = Inner()
    needed: str = Field(description="name of it")


def test_a_config_cannot_be_changed() -> None:
    config = Outer.build({"needed": "x"})
    with pytest.raises(ValidationError):
        config.width = 3  # type: ignore[misc]
    assert config.width == 64


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"widht": 3}, r"run: unknown option 'widht'; did you mean 'width'\?"),
        ({"inner": {"alfa": 3}}, r"unknown option 'inner.alfa'; did you mean 'alpha'\?"),
        ({"width": "many"}, "run: width: .*found 'many'"),
        ({"width": 0}, "run: width: .*greater than 0"),
        ({"inner": {"alpha": float("nan")}}, "run: inner.alpha: .*finite number"),
        ({"inner": {"alpha": float("inf")}}, "finite number"),
        ({"inner": 3}, "run: inner: "),
        ({}, "run: option 'needed' is missing; it is the name of it"),
    ],
)
def test_a_wrong_setting_names_its_key_and_the_nearest_right_one(values: dict[str, object], message: str) -> None:
    given = values if not values else {"needed": "x", **values}
    with pytest.raises(InputError, match=message):
        Outer.build(given, where="run")


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], {}),
        (["a=1"], {"a": 1}),
        (["a.b=2", "a.c=2.5", "d=true"], {"a": {"b": 2, "c": 2.5}, "d": True}),
        (["a=time:0.8"], {"a": "time:0.8"}),
        (["a=x=1,y=2"], {"a": "x=1,y=2"}),
        (['a="1"'], {"a": "1"}),
        (["a=[1, 2]"], {"a": [1, 2]}),
        (["a="], {"a": ""}),
        ([" a.b = c d "], {"a": {"b": "c d"}}),
        (["a=1", "a=2"], {"a": 2}),
    ],
)
def test_overrides_are_nested_and_typed(pairs: list[str], expected: dict[str, object]) -> None:
    assert parse_overrides(pairs) == expected


@pytest.mark.parametrize("pairs", [["a"], ["=1"], [" =1"], ["a=1", "a.b=2"]])
def test_a_wrong_override_is_refused(pairs: list[str]) -> None:
    with pytest.raises(InputError, match="--set"):
        parse_overrides(pairs)


def test_an_override_of_many_brackets_is_text() -> None:
    text = "[" * 5000
    assert parse_overrides([f"a={text}"]) == {"a": text}


def test_nan_from_the_command_line_is_refused() -> None:
    with pytest.raises(InputError, match=r"inner\.alpha: .*finite"):
        Outer.build({"needed": "x", **parse_overrides(["inner.alpha=nan"])})


def test_settings_come_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("width = 3\n[inner]\nalpha = 1.5\n", encoding="utf-8")
    assert load_toml(path) == {"width": 3, "inner": {"alpha": 1.5}}


@pytest.mark.parametrize(
    "content", [b"width = ", b"\xff\xfe", b"a = 1\na = 2", b"x" * (1 << 21), b"a = " + b"[" * 5000]
)
def test_a_broken_toml_file_is_an_input_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"run\.toml"):
        load_toml(path)


def test_a_missing_toml_file_is_an_input_error(tmp_path: Path) -> None:
    for path in (tmp_path / "no.toml", tmp_path):
        with pytest.raises(InputError, match="give a readable TOML file"):
            load_toml(path)


class Thing:
    """Something to register."""


class Impostor:
    """Something that would like to take its name."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[object]:
    here = __name__
    points = [
        EntryPoint("gru", f"{here}:Impostor", "ecoc.encoders"),
        EntryPoint("outside", f"{here}:Impostor", "ecoc.encoders"),
    ]
    asked: list[str] = []

    def found(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return points if group == "ecoc.encoders" else []

    monkeypatch.setattr("ecoc.registry.entry_points", found)
    return Registry("encoder", {"gru": Thing, "narm": Thing})


def test_a_built_in_name_cannot_be_taken_over(registry: Registry[object]) -> None:
    assert registry["gru"] is Thing
    assert registry["outside"].__name__ == "Impostor"
    assert list(registry) == ["gru", "narm", "outside"]


def test_an_unknown_name_suggests_the_nearest(registry: Registry[object]) -> None:
    with pytest.raises(InputError, match=r"unknown encoder 'nram'; did you mean 'narm'\?"):
        registry["nram"]
    with pytest.raises(InputError, match=r"did you mean 'outside'\?"):
        registry["outsid"]
    with pytest.raises(InputError, match="there is: gru, narm, outside"):
        registry["zzz"]


def test_hints_are_the_nearest_name_or_all_names() -> None:
    assert did_you_mean("USER_ID", ["user_id", "item"]) == "did you mean 'user_id'?"
    assert did_you_mean("x", []) == "there is none"
    assert did_you_mean("x", map(str, range(100))).endswith("19, …")


def test_every_error_has_its_exit_code() -> None:
    codes = {
        errors.EcocError: 1,
        errors.InputError: 2,
        errors.ArtifactError: 3,
        errors.TrainingError: 4,
        errors.ResourceError: 5,
    }
    for kind, code in codes.items():
        assert kind.exit_code == code
        assert issubclass(kind, errors.EcocError)
        assert getattr(ecoc, kind.__name__) is kind


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(ecoc.__all__) <= set(dir(ecoc))
    for name in (*ecoc.__all__, *ecoc.__all__):  # twice: a name is the same after its first use
        thing = getattr(ecoc, name)
        assert isinstance(thing, FunctionType | type), name
        assert (thing.__name__, thing.__module__.partition(".")[0]) == (name, "ecoc")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ecoc.nothing


def test_a_name_that_changed_warns_and_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"ecoc\.choose_w is now ecoc\.choose_weight"):
        assert ecoc.choose_w is ecoc.choose_weight
    assert "choose_w" not in dir(ecoc)


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_importing_ecoc_loads_nothing_heavy() -> None:
    loaded = modules_after("import ecoc")
    assert "ecoc" in loaded
    assert loaded.isdisjoint({*HEAVY, "numpy", "pydantic"})


def test_preparing_a_log_starts_without_torch_and_gymnasium() -> None:
    loaded = modules_after("import ecoc.data.prepare")
    assert {"duckdb", "ecoc.data.prepare"} <= loaded
    assert loaded.isdisjoint({"torch", "gymnasium", "typer"})


@pytest.mark.parametrize("arguments", [["--help"], ["prepare", "--help"], ["info", "--help"], ["demo", "-h"]])
def test_help_works_without_torch_or_the_data_engine(arguments: list[str]) -> None:
    code = (
        f"sys.argv = ['ecoc', *{arguments!r}]\nfrom ecoc.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    loaded = modules_after(code)
    assert "ecoc.cli" in loaded
    assert loaded.isdisjoint({"torch", "duckdb", "pyarrow", "gymnasium", "numpy"})


def test_the_command_prints_help() -> None:
    command = Path(sys.executable).with_name("ecoc")
    done = subprocess.run([str(command), "--help"], capture_output=True, text=True, check=True)
    for name in ("prepare", "info", "demo"):
        assert name in done.stdout
    assert done.stderr == ""
