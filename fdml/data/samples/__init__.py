"""RowSet data sets."""
