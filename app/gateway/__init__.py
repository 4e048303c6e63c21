"""One governed request, from the call to the record."""
