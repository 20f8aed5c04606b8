"""ECoC: efficient continuous control."""

from ecoc.methods.ecoc.method import ECoC

__all__ = ["ECoC"]
