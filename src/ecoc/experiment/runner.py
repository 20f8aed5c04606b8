"""Runner: measures the cost of steps, fits the plan into the time budget, and computes job after job."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ecoc.durations import readable
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.jobs import Clock, Job, JobResult, Results, in_order, run_jobs
from ecoc.experiment.plan import SHARE, Plan, Plans, cuts, fit
from ecoc.experiment.results import SHOWN_METRIC, EarnedViews, Measurement, RankedViews
from ecoc.experiment.variants import variant_of
from ecoc.progress import ProgressCallback

_LOG = logging.getLogger("ecoc.experiment")
_TIMING = 0.2  # share of a budget for measuring steps; what is not measured by then counts as the slowest that was


@dataclass(frozen=True)
class Runner:
    """Plans and runs the jobs of a call, within the time of its clock. It logs the plan and each job as it ends."""

    clock: Clock
    progress: ProgressCallback

    def planned(self, context: Context, experiments: Sequence[Experiment], common: Mapping[str, str]) -> Context:
        """The context with the plan of an earlier call with the same request, or with a new plan."""
        self._measure_steps(context, experiments)
        plans, key = Plans(context.out), {**context.request.values(), **common}
        plan = plans.load(key)
        if plan is None:
            plan = self._plan(context, experiments)
            plans.save(key, plan)
        context = replace(context, plan=plan)
        self._announce(context, experiments)
        return context

    def run(self, context: Context, experiment: Experiment) -> Results:
        """Compute the jobs of an experiment."""
        jobs = jobs_of(context, [experiment])
        numbers = {job.name: number for number, job in enumerate(jobs, 1)}

        def log(job: Job[Any], result: JobResult[Any], is_new: bool) -> None:
            if is_new:
                _LOG.info("[%d/%d] %s: %s", numbers[job.name], len(jobs), job.name, _outcome(result))

        return run_jobs(jobs, context.store, self.clock, self.progress, log)

    def _plan(self, context: Context, experiments: Sequence[Experiment]) -> Plan:
        budget = context.request.budget
        highest = max((job.priority for each in experiments for job in each.jobs(context)), default=0)
        requested = replace(context.plan, priority=highest)

        def cost(plan: Plan) -> float:
            return sum(job.seconds for job in jobs_of(replace(context, plan=plan), experiments))

        if budget is None:
            return replace(requested, seconds=cost(requested))
        plan = fit(requested, cost, SHARE * budget - self.clock.spent)
        kept = {job.name for job in jobs_of(replace(context, plan=plan), experiments)}
        every = jobs_of(replace(context, plan=replace(plan, priority=requested.priority)), experiments)
        left_out = sorted({f"{job.method} ({job.encoder})" for job in every if job.name not in kept})
        return replace(plan, trimmed=cuts(requested, plan, budget, left_out))

    def _measure_steps(self, context: Context, experiments: Sequence[Experiment]) -> None:
        """Measure the step cost of each variant and encoder. It is stored as a job, so a later call plans alike."""
        needed = sorted(
            {job.timed_as for each in experiments for job in each.jobs(context) if job.timed_as is not None}
        )
        jobs = {key: context.step_cost_job(variant_of(key[0]), key[1]) for key in needed}
        missing = sum(not _is_done(context, job) for job in jobs.values())
        if not jobs:
            return
        if missing:
            _LOG.info("measuring a few training steps of %d combinations of method and encoder", missing)
        first, *others = jobs.values()  # at least one is measured, or there would be nothing to plan with
        results = run_jobs([first], context.store, self.clock, self.progress)
        results |= run_jobs(others, context.store, self.clock.part(_TIMING), self.progress)
        for key, job in jobs.items():
            cost = results.value(job)
            if cost is not None:
                context.step_costs[key] = cost

    def _announce(self, context: Context, experiments: Sequence[Experiment]) -> None:
        plan, jobs = context.plan, jobs_of(context, experiments)
        open_jobs = [job for job in jobs if not _is_done(context, job)]
        done = f", {len(jobs) - len(open_jobs)} of them done already" if len(open_jobs) < len(jobs) else ""
        _LOG.info(
            "%s: %d jobs%s; %s, %d seed%s; about %s on this machine",
            context.request.experiment,
            len(jobs),
            done,
            context.length,
            plan.seeds,
            "s" * (plan.seeds > 1),
            readable(sum(job.seconds for job in open_jobs)),
        )
        for text in plan.trimmed:
            _LOG.info("trimmed: %s", text)


def jobs_of(context: Context, experiments: Sequence[Experiment]) -> list[Job[Any]]:
    """The jobs of some experiments under a plan, each once, in order."""
    return in_order(job for each in experiments for job in each.jobs(context) if job.priority <= context.plan.priority)


def _is_done(context: Context, job: Job[Any]) -> bool:
    stored = context.store.load(job)
    return stored is not None and stored.is_done


def _outcome(result: JobResult[Any]) -> str:
    if not result.is_done:
        return result.message if result.status == "not run" else f"failed: {result.message}"
    text = "done"
    match result.value:
        case RankedViews(views=views):
            text = "; ".join(f"{title} {view.metrics[SHOWN_METRIC]:.4f}" for title, view in views.items())
        case EarnedViews(views=earned):
            text = "; ".join(f"{title} {view.reward:.3f}" for title, view in earned.items())
        case Measurement(stopped=str(reason)):
            text = reason
    return f"{text} ({readable(result.seconds)})"
