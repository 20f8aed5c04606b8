"""Encoders: history -> preference vector. One file and one line of `ecoc.registry` make a new one."""

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders.base import Encoder, EncoderConfig, PredictionTask, at
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

ENCODERS: Registry[Encoder] = Registry("encoder")
