"""Workflows of the kill matrix."""
