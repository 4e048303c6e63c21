"""The playground: its form, its examples, and running a reply through the pipeline."""
