"""Results as reports: a document is data; tables, figures, pages and terminal text are made from it."""
