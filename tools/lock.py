"""Choose versions and write requirements/core.txt and requirements/dev.txt, with the hashes of every file.

torch itself stays out: it is installed first and alone (constraints.txt), because a CPU build and the default build of
the same version have different hashes. What torch needs is locked with the rest.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEADER = """\
# Exact versions and hashes, made by `make lock`; torch is installed before, from constraints.txt.
"""


def needs_of_torch() -> list[str]:
    """What the installed CPU build of torch requires on this platform."""
    from packaging.requirements import Requirement

    parsed = [Requirement(text) for text in requires("torch") or []]
    return [str(need) for need in parsed if need.marker is None or need.marker.evaluate({"extra": ""})]


def lock(target: Path, extras: list[str]) -> None:
    """Resolve pyproject.toml with `extras` and write `target`."""
    with tempfile.TemporaryDirectory() as folder:
        extra_input = Path(folder) / "torch-needs.in"
        extra_input.write_text("\n".join(needs_of_torch()) + "\n")
        no_torch = Path(folder) / "no-torch.txt"
        no_torch.write_text("torch ; python_version < '3'\n")
        chosen = subprocess.run(
            [
                Path(sys.executable).parent / "uv",
                *("pip", "compile", ROOT / "pyproject.toml", extra_input),
                *(part for extra in extras for part in ("--extra", extra)),
                *("--override", no_torch, "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"),
                *("--python-version", "3.11", "--quiet"),
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    target.parent.mkdir(exist_ok=True)
    target.write_text(HEADER + chosen)
    packages = sum(line.endswith(" \\") and "==" in line for line in chosen.splitlines())
    print(f"{target.relative_to(ROOT)}: {packages} packages")


if __name__ == "__main__":
    lock(ROOT / "requirements" / "core.txt", [])
    lock(ROOT / "requirements" / "dev.txt", ["dev"])
