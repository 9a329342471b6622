#!/bin/sh
# Once a month, in the folder of the label party: train with the new rows, and score the ids of ids.csv with the version
# that is promoted then. Started again after any failure it goes on where it was: a run has its name for good.
set -eu
month=$(date +%Y-%m)
mkdir -p scores
fdml check party.toml --run ../monthly.toml
fdml run ../monthly.toml --name "$month" --wait --json "scores/run-$month.json"
fdml predict party.toml --ids ids.csv --out "scores/.$month.part.parquet" --retry 3600 --json "scores/answers-$month.json"
mv "scores/.$month.part.parquet" "scores/$month.parquet"   # whoever reads scores/ finds whole files alone
fdml report party.toml --run "$month"
