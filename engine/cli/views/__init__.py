"""What commands print: pure functions from data (an answer of the daemon, problems of a file) to tables and text."""
