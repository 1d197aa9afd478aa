"""Rotating queries and keys; `reference` is the specification."""

from .reference import Order, rotate

__all__ = ["Order", "rotate"]
