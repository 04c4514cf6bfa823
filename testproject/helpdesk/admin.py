from __future__ import annotations

from django.contrib import admin

from .models import Note, ServiceRequest, Ticket


class NoteInline(admin.TabularInline):
    model = Note
    extra = 0
    readonly_fields = ["author", "text", "created_at"]


@admin.register(Ticket)
class TicketAdmin(admin.ModelAdmin):
    list_display = ["number", "status", "credit", "escalated_at", "created_at"]
    list_filter = ["status"]
    search_fields = ["number"]
    inlines = [NoteInline]


@admin.register(ServiceRequest)
class ServiceRequestAdmin(admin.ModelAdmin):
    list_display = ["service", "action", "key", "times"]
    list_filter = ["service"]
