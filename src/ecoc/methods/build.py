"""Builds a method with fresh networks from the names and settings of a run."""

from typing import Protocol

from ecoc.batch import Dims
from ecoc.encoders import ENCODERS, EncoderConfig
from ecoc.methods import METHODS, BuildContext, Method, MethodConfig


class MethodSettings(Protocol):
    """The settings that define a method; a `RunConfig` has them."""

    @property
    def encoder_name(self) -> str:
        """Name of the encoder."""

    @property
    def encoder(self) -> EncoderConfig:
        """Settings of the encoder."""

    @property
    def method_name(self) -> str:
        """Name of the method."""

    @property
    def method(self) -> MethodConfig:
        """Settings of the method."""


def build_method(config: MethodSettings, dims: Dims) -> Method:
    """The method of a run with fresh weights."""
    kind = ENCODERS[config.encoder_name]
    parts = BuildContext(dims, config.encoder, lambda **changes: kind(config.encoder.model_copy(update=changes), dims))
    return METHODS[config.method_name](config.method, parts)
