"""What every parameter of the estimators means: the text that `help` and notebooks show."""

from __future__ import annotations

from typing import TypeVar

Class = TypeVar("Class", bound=type)

PARAMETERS = """
    Parameters
    ----------
    groups : dict or list, default None
        Which columns belong to which party: {"bank": ["age", "income"], "shop": ["visits"]}, or a list of ranges, lists
        of column numbers (from 0) or lists of column names. The first party holds the labels. None cuts the columns
        in two.
    model : str, dict, function or list of these, default "linear"
        A kind of model ("linear", "fm", "mlp", "trees", or one that was registered); a mapping with its settings,
        {"kind": "mlp", "hidden": [32]}; a function of (inputs, width) that returns a torch.nn.Module; or a list with
        one of these per party.
    loss : str, default None
        "logistic" or "hinge" for two classes, "softmax" for more; "squared", "poisson" (counts and rates) or "quantile"
        for a regression; or one that was registered. None takes the first that fits.
    quantile : float, default None
        The level of loss "quantile": the share of rows whose target is to be below the prediction. None is 0.5.
    hidden : sequence of int, default (64,)
        The widths of the hidden layers of "mlp".
    factors : int, default 8
        The length of a feature's vector in "fm".
    l2 : float or "auto"
        Weight of the squared parameters in the objective.
    optimizer : str
        "sgd", "momentum", "adagrad", "adam" or "auto"; of "mlp" and "trees+mlp" also "factored".
    momentum : float, default 0.9
        Of the optimizers "momentum", "adam" and "factored".
    learning_rate : float or "auto"
        The step at the start; "auto" fits it to the rows of each party.
    lr_decay : str, default "linear"
        How the step falls: "linear" to zero at the end, "sqrt" with the root of the update's number, or "constant".
    epochs : int or "auto"
        How often all rows are visited.
    batch_size : int or "auto"
        Rows of one update.
    batches_per_block : int, "all" or "auto"
        How many batches one exchange between the parties covers.
    passes : int, default 1
        How often a party goes over a block before the next exchange.
    lookahead : int or "auto"
        How many blocks ahead a party sends its predictions.
    staleness : int, default 0
        How many blocks the fastest party may be ahead of the slowest. 0 gives the same result every time.
    echo : float, default None
        How much the others are assumed to move as a party itself moves; None is the number of parties.
    joint : {"sum", "fm", "head"}, default "sum"
        What becomes of the sum of all parties' predictions. "fm" lets features of different parties interact by
        products of vectors, "head" by a small network over the sum of vectors.
    joint_width : int, default None
        Numbers of a party's vector; None is 8 for "fm" and 16 for "head".
    scale : str, default "standard"
        "standard" brings columns to mean 0 and variance 1, as the columns of files are, and does so again in `predict`;
        sparse columns are not centred. "none" takes them as they are.
    class_weight : "balanced", dict or None, default None
        How much a row counts by its class: "balanced" gives every class the same weight in all, {class: weight} gives
        them their own. For classifiers only.
    early_stopping : bool, default False
        Whether to hold rows out and keep the epoch with the lowest loss on them.
    validation_fraction : float, default 0.1
        The share of rows that early stopping holds out.
    n_iter_no_change : int, default 5
        Epochs without a lower loss on the held-out rows that end the training.
    warm_start : bool, default False
        Whether `fit` goes on from where the last `fit` ended.
    verbose : bool, default False
        Whether to show progress and the training loss, in a terminal or a notebook.
    random_state : int, RandomState or None, default None
        Seeds orders and starting parameters.

    Attributes
    ----------
    models_ : dict
        By party its local model.
    groups_ : list of lists
        The numbers of the columns of every party.
    loss_curve_ : list of float
        The mean training loss of every epoch, of the sums that were exchanged in it.
    validation_curve_ : list of float
        With early stopping: the loss of the held-out rows after each of these epochs.
    n_iter_ : int
        How many epochs were trained; with early stopping the number of the one that was kept.
    coef_, intercept_ : arrays
        Where every party is linear: the joint score of the input as it was given.
    n_features_in_, feature_names_in_
        As scikit-learn has them.
"""
"""Each default that says "auto" is explained in docs/settings.md."""


def documented(cls: Class) -> Class:
    """The class with the parameters' meaning behind its own docstring."""
    cls.__doc__ = f"{cls.__doc__}\n{PARAMETERS}"
    return cls
