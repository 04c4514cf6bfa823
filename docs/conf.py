"""Sphinx with MyST and Furo: `make docs`."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

project = "django-workflows"
author = "the django-workflows contributors"
release = re.search(r'__version__ = "(.+)"', (ROOT / "django_workflows/__init__.py").read_text())[1]
version = release

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
# Every heading down to the third level can be linked to, as on GitHub.
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = f"django-workflows {release}"
html_show_copyright = False
# Quick to read without a network: no web fonts, no scripts of others.
html_copy_source = False
exclude_patterns = ["_build"]
