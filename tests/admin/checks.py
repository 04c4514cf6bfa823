"""Permissions that gates of the tests name, and codecs."""


def broken(user, run):
    raise ValueError("broken on purpose")


class Reverse:
    """Hides what it stores from a reader in a hurry."""

    def encode(self, text):
        return text[::-1]

    def decode(self, text):
        return text[::-1]


class Picky:
    """Has lost its key."""

    def encode(self, text):
        return text

    def decode(self, text):
        raise ValueError("the key is gone")
