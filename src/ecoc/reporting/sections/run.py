"""Everything that is known about a run, as sections."""

from pathlib import Path

from ecoc.reporting.document import Section
from ecoc.reporting.sections.training import training_section


def run_sections(path: Path) -> list[Section]:
    """How the run trained."""
    return [training_section(path)]
