"""Settings of the demo project, each of them read from the environment.

Out of the box: a SQLite file beside manage.py, for development. DATABASE_URL moves it to another
database, DEBUG=off asks for a SECRET_KEY.
"""

from datetime import timedelta
from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured

from testproject.databases import database

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="for-development-only-never-deploy" if DEBUG else "")
if not SECRET_KEY:
    raise ImproperlyConfigured("SECRET_KEY must be set where DEBUG is off.")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_workflows",
    "testproject.shop",
    "testproject.helpdesk",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
ASGI_APPLICATION = "testproject.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# No ATOMIC_REQUESTS: on SQLite each transaction takes the one write lock, so pages that only read
# would hold up the workers. Views that write open a transaction themselves.
DATABASES = {"default": database(env, default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_TZ = env.bool("USE_TZ", default=True)

STATIC_URL = "static/"

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "shop:orders"
LOGOUT_REDIRECT_URL = "login"

# How slow the made-up payment provider answers, and how long a paid order may still be stopped.
SHOP_CHARGE_SECONDS = env.float("SHOP_CHARGE_SECONDS", default=0.5)
SHOP_COOLING_OFF = timedelta(seconds=env.float("SHOP_COOLING_OFF_SECONDS", default=1.0))

# Shared with whoever posts tickets' events; empty refuses them all.
HELPDESK_WEBHOOK_SECRET = env.str(
    "HELPDESK_WEBHOOK_SECRET", default="for-development-only" if DEBUG else ""
)
