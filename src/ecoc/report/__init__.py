"""Results as pages and tables: a document is data, rendering is apart."""
