"""What a party holds, and how it is read.

`sources` opens a party's files and `readers.load` turns them into a `table.Table`
of float32 rows: `files` reads CSV and Parquet and `encoding` makes features of
their columns, `matrices` and `libsvm` read files without named columns, `ids`
spells ids as all parties do, `fields` makes labels and weights. `blocks` keeps
features on disk in the order the parties share. `adult` is the bundled data set
and `partition` cuts one table into parties.
"""
