"""Encoders: history -> preference vector. One file and one line here make a new one."""

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders.base import Encoder, EncoderConfig, PredictionTask, at
from ecoc.encoders.bert4rec import BERT4Rec
from ecoc.encoders.caser import Caser
from ecoc.encoders.dhcn import DHCN
from ecoc.encoders.gcsan import GCSAN
from ecoc.encoders.gru4rec import GRU4Rec
from ecoc.encoders.narm import NARM
from ecoc.encoders.nextitnet import NextItNet
from ecoc.encoders.sasrec import SASRec
from ecoc.encoders.srgnn import SRGNN
from ecoc.encoders.ssept import SSEPT
from ecoc.encoders.stamp import STAMP
from ecoc.registry import Registry

__all__ = [
    "ENCODERS",
    "PAD",
    "Batch",
    "Dims",
    "Encoder",
    "EncoderConfig",
    "History",
    "PredictionTask",
    "TrainSequences",
    "at",
]

ENCODERS: Registry[Encoder] = Registry(
    "encoder",
    {
        "gru4rec": GRU4Rec,
        "narm": NARM,
        "stamp": STAMP,
        "caser": Caser,
        "nextitnet": NextItNet,
        "srgnn": SRGNN,
        "gcsan": GCSAN,
        "dhcn": DHCN,
        "sasrec": SASRec,
        "ssept": SSEPT,
        "bert4rec": BERT4Rec,
    },
)
