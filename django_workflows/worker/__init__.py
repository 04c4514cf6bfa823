"""Processes, threads, sockets. No workflow semantics."""
