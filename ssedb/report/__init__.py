"""The report: a page of runs, as a folder or one file, opened without server or network."""
