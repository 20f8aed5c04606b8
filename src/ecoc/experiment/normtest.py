"""The paper's statistical test of normalised representations, on supervised runs of every encoder."""

from collections.abc import Mapping
from typing import Any

from ecoc.encoders import ENCODERS
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Arrays, JobResult
from ecoc.experiment.jobs import Cell as Work
from ecoc.experiment.tables import caveats, said
from ecoc.experiment.variants import VARIANTS, preset_of
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Column, Section, Table

_START, _RANKED = 2.0, 3e-7  # seconds an encoder: to open it; an item and sample, controls included
_SAMPLES = 200_000  # at most: 20 repeats of 10,000


def cells(context: Context) -> list[Work]:
    """One supervised run an encoder, then the test of them all."""
    encoders = context.encoders(tuple(ENCODERS))
    runs = {name: context.run_cell(VARIANTS["supervised"], name, context.asked.seed) for name in encoders}

    def finished() -> dict[str, str]:
        """Encoder and weights of the runs that are there."""
        found = {name: context.store.load(cell) for name, cell in runs.items()}
        return {name: one.facts["weights_sha256"] for name, one in found.items() if one is not None and one.is_done}

    def work(watch: ProgressCallback) -> tuple[dict[str, Any], Arrays]:
        from ecoc.evaluation.norm_test import normtest

        spec = [context.run(VARIANTS["supervised"], name, context.asked.seed) for name in finished()]
        return normtest(
            [context.folder(one) for one in spec], context.data, save=False, progress=watch
        ).model_dump(), {}

    samples = min(context.data.counts.test_targets, _SAMPLES)
    seconds = len(encoders) * (_START + _RANKED * samples * context.data.counts.items)
    test = Work("normtest", work, finished, seconds=seconds, stage=2, method="normtest")
    return [*runs.values(), test]


def section(context: Context, results: Mapping[str, JobResult]) -> Section:
    """What the test says."""
    from ecoc.evaluation.results import NormTestResult
    from ecoc.reporting.sections.norm_test import norm_test_section

    found = results["normtest"]
    own = cells(context)
    if not found.is_done:
        table = Table(id="normtest", title="Norm test", columns=[Column(name="result")], rows=[said(found.message, 1)])
        return Section(
            id="normtest",
            title="Normalised representations",
            tables=[table],
            caveats=caveats(context, own, results),
        )
    made = norm_test_section(NormTestResult.model_validate(found.facts), preset_of(context.data))
    return made.model_copy(update={"caveats": [*made.caveats, "one seed an encoder", *caveats(context, own, results)]})


NORMTEST = Experiment("normtest", "Normalised representations", cells, section)
