"""Methods: how a policy is learned. One file and one line here make a new one."""

from ecoc.batch import PAD, Batch, History, TrainSequences
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig, Phase
from ecoc.methods.ecoc.method import ECoC
from ecoc.methods.neural_lcb import NeuralLCB
from ecoc.methods.prl import PRL
from ecoc.methods.sa2c import SA2C
from ecoc.methods.sdac import SDACDC, SDACSR
from ecoc.methods.sqn import SQN
from ecoc.methods.supervised import Supervised
from ecoc.methods.untrained import Markov, Popular, Recent
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

METHODS: Registry[Method] = Registry(
    "method",
    {
        "supervised": Supervised,
        "ecoc": ECoC,
        "sqn": SQN,
        "sa2c": SA2C,
        "sdac_sr": SDACSR,
        "sdac_dc": SDACDC,
        "prl": PRL,
        "neural_lcb": NeuralLCB,
        "popular": Popular,
        "recent": Recent,
        "markov": Markov,
    },
)
