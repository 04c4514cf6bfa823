import pytest

from tests.conftest import process_environment
from tests.lab.zygote import Zygote


@pytest.fixture
def zygote(transactional_db, tmp_path):
    """Forks processes; whatever is left of them is killed after the test."""
    warm = Zygote(process_environment(), tmp_path)
    yield warm
    warm.close()
