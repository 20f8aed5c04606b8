"""Methods: how a policy is learned. One file and one line of `ecoc.registry` make a new one.

This module exports what a method may need, so that a package of one's own imports nothing deeper.
"""

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import Encoder, EncoderConfig, PredictionTask
from ecoc.losses.behaviour_cloning import all_items_loss, bpr_loss, softmax_loss
from ecoc.losses.conservatism import conservatism_loss
from ecoc.losses.returns import Transitions, half_squared_error, lambda_returns, td_targets
from ecoc.losses.sampling import Pool, sample_negatives, sample_pool
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig, Phase
from ecoc.methods.behaviour_loss import BehaviourLoss, BehaviourLossConfig
from ecoc.methods.ecoc.method import ECoC
from ecoc.methods.supervised import Supervised
from ecoc.methods.targets import Targets
from ecoc.policies.base import DensePolicy, Head, InnerProductPolicy, Policy, TiedPolicy, item_table
from ecoc.policies.ranking import Query
from ecoc.policies.value_policy import ValuePolicy
from ecoc.registry import Registry

__all__ = [
    "METHODS",
    "PAD",
    "Batch",
    "BehaviourLoss",
    "BehaviourLossConfig",
    "BuildContext",
    "DensePolicy",
    "Dims",
    "ECoC",
    "Encoder",
    "EncoderConfig",
    "Head",
    "History",
    "InnerProductPolicy",
    "Loss",
    "Method",
    "MethodConfig",
    "Phase",
    "Policy",
    "Pool",
    "PredictionTask",
    "Query",
    "Supervised",
    "Targets",
    "TiedPolicy",
    "TrainSequences",
    "Transitions",
    "ValuePolicy",
    "all_items_loss",
    "bpr_loss",
    "conservatism_loss",
    "half_squared_error",
    "item_table",
    "lambda_returns",
    "sample_negatives",
    "sample_pool",
    "softmax_loss",
    "td_targets",
]

METHODS: Registry[Method] = Registry("method")
