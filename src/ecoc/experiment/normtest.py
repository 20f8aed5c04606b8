"""The paper's test of normalised representations, on supervised runs of every encoder."""

from typing import Any

from ecoc.encoders import ENCODERS
from ecoc.evaluation.results import NormTestResult
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Arrays, Job, JobResult, Results
from ecoc.experiment.tables import caveats, no_numbers
from ecoc.experiment.variants import VARIANTS, preset_of
from ecoc.progress import ProgressCallback
from ecoc.reporting.document import Section, Table

_START, _RANKED = 2.0, 3e-7  # seconds to open an encoder; per item and sample, including controls
_SAMPLES = 200_000  # at most: 20 repeats of 10,000


def jobs(context: Context) -> list[Job[Any]]:
    """One supervised run per encoder, then the test of all of them."""
    encoders = context.encoders(tuple(ENCODERS))
    runs = {name: context.run_job(VARIANTS["supervised"], name, context.request.seed) for name in encoders}

    def finished() -> dict[str, str]:
        """Encoder -> hash of the weights, for the finished runs."""
        results = {name: context.store.load(job) for name, job in runs.items()}
        values = {name: result.value for name, result in results.items() if result is not None}
        return {name: value.weights_sha256 for name, value in values.items() if value is not None}

    def work(progress: ProgressCallback) -> tuple[NormTestResult, Arrays]:
        from ecoc.evaluation.norm_test import normtest

        specs = [context.run(VARIANTS["supervised"], name, context.request.seed) for name in finished()]
        return normtest([context.folder(spec) for spec in specs], context.data, save=False, progress=progress), {}

    samples = min(context.data.counts.test_targets, _SAMPLES)
    seconds = len(encoders) * (_START + _RANKED * samples * context.data.counts.items)
    test = Job("normtest", NormTestResult, work, finished, seconds=seconds, wave=2, method="normtest")
    return [*runs.values(), test]


def section(context: Context, results: Results) -> Section:
    """Results of the test."""
    from ecoc.reporting.sections.norm_test import norm_test_section

    own = jobs(context)
    test: JobResult[NormTestResult] = results.of(own[-1])
    limits = caveats(context, own, results)
    if test.value is None:
        table = Table.of("normtest", "Norm test", ["result"], [no_numbers(test.message, 1)])
        return Section(id="normtest", title="Normalised representations", tables=[table], caveats=limits)
    norm_section = norm_test_section(test.value, preset_of(context.data))
    return norm_section.model_copy(update={"caveats": [*norm_section.caveats, "one seed per encoder", *limits]})


NORMTEST = Experiment("normtest", "Normalised representations", jobs, section)
