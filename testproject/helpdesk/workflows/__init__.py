"""Patterns that people come for, one module each; `docs/how-to/` has a page on each."""

from .credits import approve_credit
from .diagnostics import collect_diagnostics, collect_diagnostics_in_one_step
from .incidents import tell_customer, tell_customers
from .replacements import replace_device
from .sla import watch_sla
from .tickets import handle_ticket

__all__ = [
    "approve_credit",
    "collect_diagnostics",
    "collect_diagnostics_in_one_step",
    "handle_ticket",
    "replace_device",
    "tell_customer",
    "tell_customers",
    "watch_sla",
]
