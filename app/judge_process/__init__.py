"""A judge in a process of its own, for Python code that must not import the gateway's packages: the SDK starts it."""
