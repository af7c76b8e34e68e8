"""Source programs: documents, names, values, flow and precision facts."""
