"""The paper's experiments on any dataset: jobs that are computed once, and tables and figures of their results.

A new experiment is one module and one line here: its `jobs` under a plan, and the `section` made of their results.
"""

from ecoc.experiment.ablation import ABLATION
from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.efficiency import EFFICIENCY
from ecoc.experiment.imitation import IMITATION
from ecoc.experiment.normtest import NORMTEST
from ecoc.experiment.ope_truth import OPE_TRUTH
from ecoc.experiment.readings import READING
from ecoc.experiment.reward import REWARD
from ecoc.experiment.sensitivity import SENSITIVITY

__all__ = ["EXPERIMENTS", "Context", "Experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (IMITATION, READING, REWARD, OPE_TRUTH, EFFICIENCY, ABLATION, SENSITIVITY, NORMTEST)
}
