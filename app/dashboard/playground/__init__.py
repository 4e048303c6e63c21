"""The playground: its form, its examples, and the code that runs a reply through the pipeline."""
