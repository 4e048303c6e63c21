"""The database: engine, transactions, tables and partitions."""
