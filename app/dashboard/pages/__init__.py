"""One module for each section of the navigation: thin handlers over what the admin API uses."""
