from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_workflows.checks import register_checks


class DjangoWorkflowsConfig(AppConfig):
    name = "django_workflows"
    verbose_name = _("Workflows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        register_checks()
        autodiscover_modules("workflows")
