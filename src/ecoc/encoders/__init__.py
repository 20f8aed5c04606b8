"""Encoders: history -> preference vector. One file and one line of `ecoc.registry` make a new one.

This module exports what an encoder may need, so that a package of one's own imports nothing deeper.
"""

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders.base import Encoder, EncoderConfig, PredictionTask, at, mlp, prefixes
from ecoc.encoders.dropout import Dropout
from ecoc.encoders.transformer import AttentionConfig, Transformer
from ecoc.registry import Registry

__all__ = [
    "ENCODERS",
    "PAD",
    "AttentionConfig",
    "Batch",
    "Dims",
    "Dropout",
    "Encoder",
    "EncoderConfig",
    "History",
    "PredictionTask",
    "TrainSequences",
    "Transformer",
    "at",
    "mlp",
    "prefixes",
]

ENCODERS: Registry[Encoder] = Registry("encoder")
