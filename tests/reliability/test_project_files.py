"""The files around the code agree with it: citation, hooks, contribution guide."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["title"] == PROJECT["name"]
    (paper,) = citation["references"]
    assert paper["identifiers"] == [{"type": "other", "value": "arXiv:2408.08047"}]
    assert [author["family-names"] for author in paper["authors"]] == ["Wang", "Wu", "Liu", "Yang"]


def test_the_hooks_run_the_checks_of_make_lint() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    tools = {hook["entry"].split()[0] for hook in repositories[0]["hooks"]}
    recipe = re.search(r"^lint:.*?(?=^\S)", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)
    assert recipe is not None
    in_lint = set(re.findall(r'"\$\(BIN\)/([\w-]+)"', recipe[0])) - {"python", "zensical"}
    assert {tool.removeprefix(".venv/bin/") for tool in tools} == in_lint
    assert len(tools) == 3  # ruff twice, mypy, lint-imports


def test_every_make_target_of_the_guide_exists() -> None:
    named = set(re.findall(r"(?:`|    )make (\w+)", (ROOT / "CONTRIBUTING.md").read_text()))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"test", "setup", "lint", "docs", "lock"} <= named <= targets


def test_relative_links_of_the_guides_lead_somewhere() -> None:
    dead = [
        f"{page}: {link}"
        for page in ("CONTRIBUTING.md", "SECURITY.md", "README.md")
        for link in LINK.findall((ROOT / page).read_text())
        if not (ROOT / link).exists()
    ]
    assert dead == []
