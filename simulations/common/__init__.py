"""What several rooms share: files, tables, figures, pages, provenance."""
