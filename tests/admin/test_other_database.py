"""The admin where the workflows have a database of their own, with time zones and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.sqlite("the process brings databases of its own, so once is enough")
@pytest.mark.parametrize("zones", ["tz", "naive"])
def test_every_page_works_with_another_alias(tmp_path, zones):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.admin.other_database", str(tmp_path), zones],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
