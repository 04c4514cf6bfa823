"""`python -m tests.lab.call <module>:<function> <json list of arguments>`: a process of its own."""

import importlib
import json
import sys

import django


def main() -> None:
    django.setup()
    module, _, name = sys.argv[1].partition(":")
    result = getattr(importlib.import_module(module), name)(*json.loads(sys.argv[2]))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
