"""Methods: how a policy is learned. One file and one line of `ecoc.registry` make a new one."""

from ecoc.batch import PAD, Batch, History, TrainSequences
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig, Phase
from ecoc.policies.base import DensePolicy, Policy, TiedPolicy
from ecoc.registry import Registry

__all__ = [
    "METHODS",
    "PAD",
    "Batch",
    "BuildContext",
    "DensePolicy",
    "History",
    "Loss",
    "Method",
    "MethodConfig",
    "Phase",
    "Policy",
    "TiedPolicy",
    "TrainSequences",
]

METHODS: Registry[Method] = Registry("method")
