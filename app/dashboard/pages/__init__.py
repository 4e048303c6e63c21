"""One module per page. Handlers are thin and use the same code as the admin API."""
