"""Permissions that gates of the tests name."""


def broken(user, run):
    raise ValueError("broken on purpose")
