"""Settings of the test suite: the demo shop's, on a database of its own.

`DATABASE_URL` picks the database; without it the tests run on a SQLite file. A worker process that
a test starts gets the *test* database by DATABASE_URL, and DJANGO_SETTINGS_MODULE=tests.settings.
"""

import json
import os
import tempfile
from datetime import timedelta
from pathlib import Path

from testproject.databases import database
from testproject.settings import *  # noqa: F403
from testproject.settings import env

# What tests ask of a worker process of theirs.
DEBUG = env.bool("LAB_DEBUG", default=False)
if "LAB_LISTEN" in env.ENVIRON:
    DJANGO_WORKFLOWS = {"LISTEN": env.bool("LAB_LISTEN")}
SECRET_KEY = "tests"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.sessions",
    # For the browser, which wants the pages' styles and scripts too.
    "django.contrib.staticfiles",
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

# Ways of connecting that a test tries on a process of its own.
_WAY = json.loads(os.environ.get("LAB_DATABASE", "{}"))
_OPTIONS = _WAY.pop("OPTIONS", {})
# None: none at all, as in a project that says nothing.
_DATABASE["OPTIONS"] = {} if _OPTIONS is None else {**_DATABASE.get("OPTIONS", {}), **_OPTIONS}

DATABASES = {"default": {**_DATABASE, "ATOMIC_REQUESTS": False, **_WAY}}

# The real hasher is slow on purpose, and these passwords guard nothing.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

SHOP_CHARGE_SECONDS = 0.0
SHOP_COOLING_OFF = timedelta(seconds=env.float("SHOP_COOLING_OFF_SECONDS", default=86400.0))
HELPDESK_WEBHOOK_SECRET = "tests"
