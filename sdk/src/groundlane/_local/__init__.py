"""A judge on this machine, in a process of its own: no gateway is needed, and none of its packages is imported here."""
