"""The rules of `ropewalk check`: what is wrong with a model's positions, and what is right."""

from __future__ import annotations

from .findings import Finding, Severity
from .runner import CheckReport, ModelReport, check, check_text

__all__ = ["CheckReport", "Finding", "ModelReport", "Severity", "check", "check_text"]
