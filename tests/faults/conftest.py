import pytest

from tests.conftest import process_environment
from tests.lab.zygote import Zygote


@pytest.fixture(scope="session")
def _warm(django_db_setup, tmp_path_factory):
    """The warm process knows the test database only once there is one."""
    warm = Zygote(process_environment(), tmp_path_factory.mktemp("zygote"))
    yield warm
    warm.close()


@pytest.fixture
def zygote(transactional_db, _warm):
    """Forks processes; whatever is left of them is killed after the test."""
    yield _warm
    _warm.kill_all()
