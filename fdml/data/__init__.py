"""A party's data: files to float32 feature rows, ids, labels and weights.

- `origins` says where rows are: files (`locations`), a query (`queries`) or a frame (`frames`). Each is a
  `table_source.TableSource` of named columns; `parquet_files` and `csv_files` read files.
- `sources` opens a party's rows; `readers.load` reads them whole, to a `table.Table`.
- `column_roles` names each column's use, `fitting` learns from training rows, `encoding` makes features
  (`column_features`, `date_features`, `feature_kinds`), `column_types` reads labels and weights.
- `matrices` and `libsvm` read files without named columns; `imputation` and `matrix_encoding` make their features.
- `ids` and `id_normalisation` make ids that are equal at all parties; `label_encoding` makes numbers of labels.
- `block_store` keeps features on disk in the order that all parties share, sorted by `external_sort`.
- `samples` holds bundled and generated data sets; `partition` cuts one table into parties.
"""
