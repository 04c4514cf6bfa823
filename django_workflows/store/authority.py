"""Who may decide a gate. Asked before anything is locked: a check may be a user's own function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Model
from django.utils.module_loading import import_string

from django_workflows.models import WorkflowRun


def reference(target: Any, what: str) -> str:
    """`module:qualname` of something that can be imported again.

    Raises:
        ValueError: it is local to a function, or a lambda.
    """
    name = getattr(target, "__qualname__", type(target).__qualname__)
    if "<" in name:
        raise ValueError(
            f"{what} must be importable, as it is stored with the gate; {name!r} isn't. "
            "Define it at a module's top level."
        )
    return f"{target.__module__}:{name}"


def dereference(path: str) -> Any:
    """What `reference` named.

    Raises:
        ImportError: it is gone.
    """
    module, _, name = path.partition(":")
    first, *rest = name.split(".")
    found = import_string(f"{module}.{first}")
    for part in rest:
        found = getattr(found, part)
    return found


def permission_text(permission: str | Callable[..., Any] | None) -> str:
    """How a gate's permission is stored: a Django permission, or a callable's reference."""
    if permission is None:
        return ""
    if callable(permission):
        return reference(permission, "permission")
    if not isinstance(permission, str) or "." not in permission:
        raise ValueError(
            f"permission must be 'app_label.codename' or a callable (user, run) -> bool, "
            f"got {permission!r}."
        )
    if ":" not in permission and permission.count(".") > 1:
        return ":".join(permission.rsplit(".", 1))
    return permission


def people(given: Any, what: str, *, groups: bool) -> dict[str, list[str]]:
    """Users (by pk) and group names that a gate names.

    Args:
        given: a user, a pk, or with `groups` a group's name; or several of them.
    """
    if given is None:
        return {}
    if isinstance(given, (str, Model)) or not isinstance(given, Iterable):
        given = [given]
    named: dict[str, list[str]] = {"users": [], "groups": []}
    for item in given:
        if isinstance(item, Model):
            is_group = item._meta.model_name == "group" and groups
            value = getattr(item, "name", "") if is_group else _key(item, what)
            named["groups" if is_group else "users"].append(str(value))
        elif isinstance(item, str) and groups:
            named["groups"].append(item)
        else:
            named["users"].append(str(item))
    return {kind: values for kind, values in named.items() if values}


def _key(user: Model, what: str) -> str:
    if user.pk is None:
        raise ValueError(f"{what} names a user that isn't saved: {user}.")
    return str(user.pk)


def why_not(
    asked: dict[str, Any], user: Any, run: WorkflowRun, groups: Collection[str] | None = None
) -> str | None:
    """Why this user may not decide this gate of this run; None for may.

    Args:
        groups: names of the user's groups, for a list of gates that has looked them up once.
    """
    if not user.is_active:
        return f"{user} is inactive"
    key = str(user.pk)
    if key in asked.get("exclude", {}).get("users", ()):
        return f"{user} is excluded from deciding it (four eyes)"
    permission = asked.get("permission", "")
    if permission and not _is_permitted(permission, user, run):
        return f"{user} lacks the permission {permission!r}"
    approvers = asked.get("approvers")
    if approvers and not _is_among(approvers, user, key, groups):
        return f"{user} is not among its approvers"
    return None


def _is_permitted(permission: str, user: Any, run: WorkflowRun) -> bool:
    if ":" in permission:
        return bool(dereference(permission)(user, run))
    return bool(user.has_perm(permission))


def _is_among(
    approvers: dict[str, list[str]], user: Any, key: str, groups: Collection[str] | None
) -> bool:
    if key in approvers.get("users", ()):
        return True
    named = approvers.get("groups")
    if not named:
        return False
    if groups is not None:
        return any(name in groups for name in named)
    return bool(user.groups.filter(name__in=named).exists())


def find_user(key: Any) -> Any:
    """The user of a pk, or None."""
    return get_user_model()._default_manager.filter(pk=key).first()
