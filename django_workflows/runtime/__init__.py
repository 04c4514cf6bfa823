"""Replay of one run. No queries of its own."""
