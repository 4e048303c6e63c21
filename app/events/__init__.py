"""What was recorded: the rows of the event log, the writer and the queries."""
