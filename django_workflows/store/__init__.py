"""The only writer of workflow tables: one function = one transaction = one transition."""
