"""The documentation builds without a warning, and its API pages hold every public name."""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
ZENSICAL = Path(sys.executable).parent / "zensical"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The HTML of all API pages."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    (folder / "src").symlink_to(ROOT / "src")
    build = subprocess.run(
        [ZENSICAL, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert build.returncode == 0, build.stdout + build.stderr
    return "".join(path.read_text() for path in sorted((folder / "site" / "reference").rglob("*.html")))


def documented_modules() -> list[str]:
    texts = [path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md"))]
    return [name for text in texts for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)]


def public_names(module: ModuleType) -> list[str]:
    """What a module lists in `__all__`; without such a list, its own classes."""
    own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [key for key in own if key[0].isupper()]))


def test_the_public_modules_have_a_page() -> None:
    assert {"ecoc", "ecoc.encoders", "ecoc.methods", "ecoc.data.sources", "ecoc.metrics"} <= set(documented_modules())


@pytest.mark.parametrize("name", documented_modules())
def test_every_public_name_is_on_its_page(pages: str, name: str) -> None:
    public = public_names(import_module(name))
    assert public
    assert [each for each in public if f'id="{name}.{each}"' not in pages] == []
