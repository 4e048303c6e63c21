"""The playground."""
