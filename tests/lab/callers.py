"""How a careful client of the API behaves."""

import time

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from django_workflows.conf import config

OUTAGES = (OperationalError, InterfaceError)


def configure(**changes):
    """Change DJANGO_WORKFLOWS in this process."""
    settings.DJANGO_WORKFLOWS = {**getattr(settings, "DJANGO_WORKFLOWS", {}), **changes}
    config.cache_clear()


def persistently(call, *arguments, seconds=60.0, on_outage=None, **options):
    """Call until the database answers, as a careful client does: same arguments, same key."""
    give_up = time.monotonic() + seconds
    pause = 0.02
    while True:
        try:
            return call(*arguments, **options)
        except OUTAGES as error:
            if time.monotonic() > give_up:
                raise
            if on_outage is not None:
                on_outage(error)
            connection.close()
            time.sleep(pause)
            pause = min(pause * 2, 0.5)
