"""Encoders: history -> preference vector. One file and one line here make a new one."""

from ecoc.batch import Dims
from ecoc.encoders.base import Encoder, EncoderConfig, Imitation
from ecoc.encoders.sasrec import SASRec
from ecoc.registry import Registry

__all__ = ["ENCODERS", "Dims", "Encoder", "EncoderConfig", "Imitation"]

ENCODERS: Registry[Encoder] = Registry("encoder", {"sasrec": SASRec})
