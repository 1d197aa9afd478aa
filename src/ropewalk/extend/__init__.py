"""Stretching a model: plan, apply, measure, report."""
