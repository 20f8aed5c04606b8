"""Presets: settings of published experiments, one TOML file each."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def presets() -> list[str]:
    """Names of the presets that come with ecoc."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def preset_file(name: str) -> Path:
    """The file of a preset."""
    return _FOLDER / f"{name}.toml"
