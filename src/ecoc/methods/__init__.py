"""Methods: how a policy is learned. One file and one line here make a new one."""

from ecoc.methods.base import Loss, Method, MethodConfig, Parts, Phase
from ecoc.methods.supervised import Supervised
from ecoc.methods.untrained import Markov, Popular, Recent
from ecoc.registry import Registry

__all__ = ["METHODS", "Loss", "Method", "MethodConfig", "Parts", "Phase"]

METHODS: Registry[Method] = Registry(
    "method", {"supervised": Supervised, "popular": Popular, "recent": Recent, "markov": Markov}
)
