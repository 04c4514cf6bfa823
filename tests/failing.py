"""Functions for steps that fail while they are told to."""

from django_workflows import RetryPolicy, step


class Effects:
    """Counts calls by name, and raises for the names that are broken."""

    def __init__(self):
        self.calls = []
        self.broken = set()

    def do(self, name, value=None):
        self.calls.append(name)
        if name in self.broken:
            raise LookupError(f"{name} is down")
        return value


def once(fn):
    """A step without retries."""
    return step(fn, retry=RetryPolicy(max_attempts=1))
