"""Approval gates as pages need them: the inbox, one gate's form, and a decision told in words.

Both the admin and the views that a project puts into its own site are built on these.
"""
