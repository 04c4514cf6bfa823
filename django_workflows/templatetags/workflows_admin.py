"""`{% load workflows_admin %}`. Empty here, filled by `django_workflows.admin.tags`: Django imports
every installed library of tags, also in a project without the admin, which this must not need."""

from django import template

register = template.Library()
