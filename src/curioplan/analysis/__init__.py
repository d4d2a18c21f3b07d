"""Figures and statistics."""
