"""The HTTP routes: parse the request, call the service, build the response."""
