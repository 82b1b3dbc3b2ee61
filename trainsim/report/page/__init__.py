"""What the interactive parts of ``report.html`` are made of: columns of data, scripts and styles."""
