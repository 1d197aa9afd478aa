"""Rotating queries and keys; `reference` is the specification."""

from .dispatch import rotate
from .reference import Order

__all__ = ["Order", "rotate"]
