"""What a party holds, and how it is read.

`readers.load` turns a party's files into a `table.Table` of float32 rows:
`frames` reads CSV and Parquet and `encoding` makes features of their columns,
`matrices` reads LIBSVM and numpy files, `fields` makes ids, labels and weights.
`adult` is the bundled data set and `partition` cuts one table into parties.
"""
