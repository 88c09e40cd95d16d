"""The report: a page that shows what runs did, made of one folder or one file, opened without a server or a network."""
