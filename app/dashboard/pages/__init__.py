"""One module per page, with thin handlers over the same code as the admin API."""
