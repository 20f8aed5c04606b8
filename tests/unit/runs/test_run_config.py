import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic.fields import FieldInfo

from ecoc.config import Config
from ecoc.encoders import ENCODERS
from ecoc.errors import ArtifactError, InputError
from ecoc.methods import METHODS
from ecoc.runs import config as run
from ecoc.runs.config import RunConfig, TrainConfig, compose, open_preset
from ecoc.runs.folder import Run, is_run
from ecoc.runs.presets import presets


def test_nothing_said_is_the_defaults() -> None:
    config = RunConfig.build({})
    assert (config.encoder_name, config.method_name) == ("sasrec", "supervised")
    assert config.encoder == ENCODERS["sasrec"].Config()
    assert config.method == METHODS["supervised"].Config()
    assert config.train == TrainConfig()
    assert compose() == compose({}, {}) == config


@pytest.mark.parametrize("encoder", list(ENCODERS))
@pytest.mark.parametrize("method", list(METHODS))
def test_every_encoder_and_method_round_trips_through_its_file(encoder: str, method: str) -> None:
    config = RunConfig.build({"encoder": {"name": encoder}, "method": {"name": method}})
    assert isinstance(config.encoder, ENCODERS[encoder].Config)
    assert isinstance(config.method, METHODS[method].Config)
    assert RunConfig.build(config.values()) == config
    assert RunConfig.build(tomllib.loads(config.toml())) == config


def other_values(field: FieldInfo) -> list[Any]:
    """Values a field may take that are not its default, as far as its type tells."""
    parts = (*get_args(field.annotation), *(choice for part in get_args(field.annotation) for choice in get_args(part)))
    if texts := [part for part in parts if isinstance(part, str)]:
        return [text for text in texts if text != field.default]
    if isinstance(field.default, bool):
        return [not field.default]
    if isinstance(field.default, int):
        return [field.default * 2, field.default + 1, field.default // 2]
    if isinstance(field.default, float):
        return [field.default / 3, 1e-05]
    return [7] if int in parts else []


SECTIONS: list[tuple[str, str, type[Config]]] = [
    *(("encoder", name, ENCODERS[name].Config) for name in ENCODERS),
    *(("method", name, METHODS[name].Config) for name in METHODS),
    ("train", "", TrainConfig),
]


@pytest.mark.parametrize(
    ("section", "name", "kind", "key"), [(*section, key) for section in SECTIONS for key in section[2].model_fields]
)
def test_every_setting_survives_its_file(section: str, name: str, kind: type[Config], key: str) -> None:
    field, named = kind.model_fields[key], {"name": name} if name else {}
    for value in other_values(field):
        try:
            config = RunConfig.build({section: {**named, key: value}})
        except InputError:  # out of its range
            continue
        assert getattr(getattr(config, section), key) == value
        assert RunConfig.build(tomllib.loads(config.toml())) == config
    if type(None) in get_args(field.annotation):  # the file leaves out what is none, so none must be the default
        assert field.default is None
    assert field.description


def test_the_file_is_what_a_person_would_write() -> None:
    config = RunConfig.build({"train": {"lr": 1e-5, "batch": 64}, "method": {"loss": "bpr", "n2": 10_000}})
    content = tomllib.loads(config.toml())
    assert list(content) == ["encoder", "method", "train"]
    assert content["train"]["lr"] == 1e-5
    assert content["train"]["batch"] == 64
    assert content["method"] == {"name": "supervised", "loss": "bpr", "in_batch": True, "n2": 10_000}
    assert "max_steps" not in content["train"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoders": {}}, r"here: unknown section 'encoders'; did you mean 'encoder'\?"),
        ({"trian": {"lr": 1}}, r"here: unknown section 'trian'; did you mean 'train'\?"),
        ({"zzz": 1}, "here: unknown section 'zzz'; there is: encoder, method, train"),
        ({"encoder": {"name": "sasrek"}}, r"unknown encoder 'sasrek'; did you mean 'sasrec'\?"),
        ({"encoder": {"name": ["sasrec"]}}, "unknown encoder"),
        ({"encoder": {"name": None}}, "unknown encoder"),
        ({"method": {"name": "Populer"}}, r"unknown method 'Populer'; did you mean 'popular'\?"),
        ({"encoder": {"dims": 8}}, r"here: encoder sasrec: unknown option 'dims'; did you mean 'dim'\?"),
        ({"method": {"los": "full"}}, r"here: method supervised: unknown option 'los'; did you mean 'loss'\?"),
        ({"method": {"name": "popular", "loss": "full"}}, "here: method popular: unknown option 'loss'"),
        ({"train": {"learning_rate": 0.1}}, "here: train: unknown option 'learning_rate'"),
        ({"train": {"lr": "fast"}}, "here: train: lr: .*found 'fast'"),
        ({"train": {"lr": float("nan")}}, "here: train: lr: "),
        ({"train": {"seed": 2**63}}, "here: train: seed: "),
        ({"train": {"windows": "tiles"}}, "here: train: windows: .*'tile'"),
        ({"encoder": {"dim": 63}}, "here: encoder sasrec: dim 63 is not a multiple of heads 2"),
        ({"encoder": "sasrec"}, "here: 'encoder' is a section, write encoder.key = value; found 'sasrec'"),
        ({"method": ["popular"]}, "here: 'method' is a section"),
        ({"train": None}, "here: 'train' is a section"),
    ],
)
def test_what_is_wrong_is_named(values: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RunConfig.build(values, where="here")


def test_building_changes_nothing_that_was_given() -> None:
    values = {"encoder": {"name": "sasrec", "dim": 32}, "method": {"name": "popular"}}
    RunConfig.build(values)
    compose(values, {"encoder": {"dim": 16}}, encoder="sasrec")
    assert values == {"encoder": {"name": "sasrec", "dim": 32}, "method": {"name": "popular"}}


def test_a_later_layer_goes_before_an_earlier_one_key_by_key() -> None:
    config = compose(
        {"train": {"lr": 0.1, "batch": 5, "keep": 3}, "encoder": {"dim": 8}},
        {"train": {"lr": 0.2, "batch": 6}},
        {"train": {"lr": 0.3}, "encoder": {"heads": 1}},
    )
    assert (config.train.lr, config.train.batch, config.train.keep) == (0.3, 6, 3)
    assert config.encoder.model_dump()["heads"] == 1
    assert config.encoder.dim == 8


def test_names_may_come_from_any_layer_and_the_argument_goes_before_them() -> None:
    assert compose({"method": {"name": "recent"}}, {"train": {"lr": 0.1}}).method_name == "recent"
    assert compose({"method": {"name": "recent"}}, {"method": {"name": "markov"}}).method_name == "markov"
    assert compose({"method": {"name": "recent"}}, method="popular").method_name == "popular"
    assert compose({"encoder": {"name": "nobody"}}, encoder="sasrec").encoder_name == "sasrec"
    with pytest.raises(InputError, match="unknown encoder 'nobody'"):
        compose({}, encoder="nobody")


@pytest.mark.parametrize("layer", [{"train": 3}, {"zzz": {}}, {"train": {"lrr": 3}}])
def test_a_wrong_layer_is_refused(layer: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        compose({}, layer)


@pytest.mark.parametrize(
    "layers",
    [
        ({"encoder": "gru4rec"},),
        ({"method": "popular"},),
        ({}, {"method": 3}, {}),
        ({"method": 3}, {"method": {"name": "popular"}}),
        ({"train": {}}, {"train": 3}),
        ({"train": 3}, {"train": {"lr": 0.1}}),
    ],
)
def test_a_section_that_is_no_table_is_refused_in_a_layer_too(layers: tuple[dict[str, Any], ...]) -> None:
    """`--set encoder=gru4rec` must not train a SASRec."""
    with pytest.raises(InputError, match="is a section"):
        compose(*layers)


PRESET = """
[encoder]
dim = 16
dropout = 0.3
[encoders.sasrec]
dropout = 0.4
heads = 4
[methods.supervised]
loss = "bpr"
[methods.popular]
[train]
lr = 0.5
batch = 7
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of presets instead of the real one."""
    (tmp_path / "mine.toml").write_text(PRESET)
    (tmp_path / "notes.txt").write_text("")
    monkeypatch.setattr("ecoc.runs.presets._FOLDER", tmp_path)
    return tmp_path


def test_a_preset_lies_between_defaults_and_layers(shelf: Path) -> None:
    config = compose({"train": {"batch": 9}, "encoder": {"heads": 2}}, {"encoder": {"heads": 1}}, preset="mine")
    assert config.train.lr == 0.5  # preset
    assert config.train.batch == 9  # file
    assert config.train.keep == TrainConfig().keep  # default
    encoder = config.encoder.model_dump()
    assert (encoder["dim"], encoder["dropout"], encoder["heads"]) == (16, 0.4, 1)
    assert config.method.model_dump()["loss"] == "bpr"


def test_a_preset_speaks_of_the_chosen_method_only(shelf: Path) -> None:
    assert compose({"method": {"name": "recent"}}, preset="mine").method == METHODS["recent"].Config()
    assert compose({"method": {"name": "supervised"}}, method="popular", preset="mine").method_name == "popular"


def test_a_name_that_is_no_text_is_refused_beside_a_preset(shelf: Path) -> None:
    with pytest.raises(InputError, match="unknown encoder"):
        compose({"encoder": {"name": ["sasrec"]}}, preset="mine")


def test_a_preset_nobody_knows_is_refused_by_name(shelf: Path) -> None:
    assert presets() == ["mine"]
    with pytest.raises(InputError, match=r"unknown preset 'mein'; did you mean 'mine'\?"):
        compose(preset="mein")
    with pytest.raises(InputError, match="unknown preset"):
        compose(preset="../mine")


@pytest.mark.parametrize("name", presets())
def test_a_preset_builds_with_every_encoder_and_method(name: str) -> None:
    content = tomllib.loads((Path(run.__file__).parent / "presets" / f"{name}.toml").read_text(encoding="utf-8"))
    assert set(content) <= {"encoder", "encoders", "method", "methods", "train"}
    for encoder in ENCODERS:
        for method in METHODS:
            config = compose(preset=name, encoder=encoder, method=method)
            assert (config.encoder_name, config.method_name) == (encoder, method)
            found = config.values()
            said = open_preset(name, encoder=encoder, method=method)
            for section, settings in said.items():
                assert {key: found[section][key] for key in settings} == settings
            assert settings_of(content, "encoders", encoder).items() <= found["encoder"].items()
            assert settings_of(content, "methods", method).items() <= found["method"].items()


def settings_of(content: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    return dict(content.get(kind, {}).get(name, {}))


def test_a_run_reads_its_settings_back(tmp_path: Path) -> None:
    config = compose({"train": {"lr": 0.123}}, method="markov")
    (tmp_path / "config.toml").write_text(config.toml())
    assert is_run(tmp_path)
    assert Run(tmp_path).config() == config
    assert Run(tmp_path).name == tmp_path.name
    with pytest.raises(InputError, match="not finished; resume it with ecoc train --resume"):
        _ = Run(tmp_path).result


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    with pytest.raises(InputError, match=r"no config\.toml in it, so it is no run"):
        Run(tmp_path).config()
    (tmp_path / "config.toml").write_text("[encoder]\nname = 'sasrek'\n")
    with pytest.raises(InputError, match="unknown encoder 'sasrek'"):
        Run(tmp_path).config()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5000])
def test_a_result_that_is_none_is_an_artifact_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(ArtifactError, match="train again"):
        _ = Run(tmp_path).result
    (tmp_path / "result.json").write_bytes(b'{"items": 3}')
    with pytest.raises(ArtifactError, match="not the result of a run"):
        _ = Run(tmp_path).result


def test_a_removed_option_with_its_former_default_is_ignored() -> None:
    """Runs that were trained when the option existed still open."""
    former = {"name": "ecoc", "awr": 0.0, "kappa": 0, "reg_weights": "grad", "critic_dropout": None, "alpha": 0.3}
    config = RunConfig.build({"method": former})
    assert config == RunConfig.build({"method": {"name": "ecoc", "alpha": 0.3}})
    assert "awr" not in config.toml()


@pytest.mark.parametrize(("name", "value"), [("awr", 1.0), ("kappa", 4.0), ("reg_weights", "detach")])
def test_a_removed_option_with_another_value_is_refused_in_one_line(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^here: method ecoc: option '{name}' was removed, so {name} = .*$") as raised:
        RunConfig.build({"method": {"name": "ecoc", name: value}}, where="here")
    assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match=f"unknown option '{name}'"):
        RunConfig.build({"method": {"name": "supervised", name: value}})


def test_the_preset_of_the_released_code_sets_every_option_that_comes_from_it() -> None:
    method = compose(preset="released", method="ecoc", encoder="gru4rec").values()["method"]
    released = {"critic": "separate", "clip": "vector", "entropy": 0.1, "dc_q": "first", "decay_actor": False}
    assert released.items() <= method.items()
