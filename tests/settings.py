"""Settings of the test suite: the demo shop's, on a database of its own.

`DATABASE_URL` picks the database; without it the tests run on a SQLite file. A worker process that
a test starts gets the *test* database by DATABASE_URL, and DJANGO_SETTINGS_MODULE=tests.settings.
"""

import os
import tempfile
from datetime import timedelta
from pathlib import Path

from testproject.databases import database
from testproject.settings import *  # noqa: F403
from testproject.settings import env

DEBUG = False
SECRET_KEY = "tests"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_workflows",
    "tests.lab",
    "testproject.shop",
    "testproject.helpdesk",
]

# A file, as worker processes can't share a database in memory; named after the process, so that two
# suites of one checkout don't delete each other's database.
_FILE = Path(tempfile.gettempdir()) / f"workflows-test-{os.getpid()}.sqlite3"

_DATABASE = database(env, default=f"sqlite:///{_FILE}")
if _DATABASE["ENGINE"] == "django.db.backends.sqlite3":
    _DATABASE["TEST"] = {"NAME": _DATABASE["NAME"]}

DATABASES = {"default": {**_DATABASE, "ATOMIC_REQUESTS": False}}

# The real hasher is slow on purpose, and these passwords guard nothing.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

SHOP_CHARGE_SECONDS = 0.0
SHOP_COOLING_OFF = timedelta(days=1)
HELPDESK_WEBHOOK_SECRET = "tests"
