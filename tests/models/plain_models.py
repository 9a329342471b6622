"""Slow twins of the compiled models: float64, dense, one formula per line.

Every twin holds `weights`, which L2 shrinks, and `biases`; both are lists of
arrays. It reads and writes the flat vector of the compiled model, so that both
can begin at the same parameters and be compared at the end.
"""

from copy import copy
from itertools import combinations, pairwise

import numpy as np


class PlainLinear:
    def __init__(self, inputs, width, *, bias):
        self.weights = [np.zeros((inputs, width))]
        self.biases = [np.zeros(width)] if bias else []

    def predict(self, x):
        return x @ self.weights[0] + sum(self.biases)

    def gradients(self, x, gradient):
        return [x.T @ gradient], [gradient.sum(axis=0) for _ in self.biases]

    def read(self, flat):
        return fill(self.weights + self.biases, flat)

    def flat(self):
        return flatten(self.weights + self.biases)


class PlainFm:
    """Every pair of features is written out, as in the definition."""

    def __init__(self, inputs, width, *, bias, factors):
        self.inputs, self.width, self.factors = inputs, width, factors
        self.weights = [np.zeros((inputs, width)), np.zeros((inputs, width, factors))]
        self.biases = [np.zeros(width)] if bias else []

    def predict(self, x):
        linear, factors = self.weights
        out = x @ linear + sum(self.biases)
        for i, j in combinations(range(self.inputs), 2):
            for k in range(self.width):
                out[:, k] += (factors[i, k] @ factors[j, k]) * x[:, i] * x[:, j]
        return out

    def gradients(self, x, gradient):
        _, factors = self.weights
        pairs = np.zeros_like(factors)
        for i in range(self.inputs):
            for j in range(self.inputs):
                if i != j:
                    for k in range(self.width):
                        pairs[i, k] += factors[j, k] * (gradient[:, k] * x[:, i] * x[:, j]).sum()
        return [x.T @ gradient, pairs], [gradient.sum(axis=0) for _ in self.biases]

    def read(self, flat):
        cells = self.inputs * self.width * (1 + self.factors)
        cell = flat[:cells].reshape(self.inputs, self.width, 1 + self.factors)
        self.weights = [cell[:, :, 0].astype(np.float64), cell[:, :, 1:].astype(np.float64)]
        fill(self.biases, flat[cells:])

    def flat(self):
        linear, factors = self.weights
        return flatten([np.concatenate([linear[:, :, None], factors], axis=2), *self.biases])


class PlainMlp:
    """Layers as `(inputs, units)`; every layer but the last is cut at zero."""

    def __init__(self, inputs, width, *, bias, hidden):
        sizes = [inputs, *hidden, width]
        self.weights = [np.zeros((below, above)) for below, above in pairwise(sizes)]
        self.biases = [np.zeros(units) for units in (sizes[1:] if bias else hidden)]

    def layers(self, x):
        """The input, then what each layer gives."""
        outs = [x]
        for depth, weight in enumerate(self.weights):
            total = outs[-1] @ weight
            if depth < len(self.biases):
                total = total + self.biases[depth]
            last = depth == len(self.weights) - 1
            outs.append(total if last else np.maximum(total, 0.0))
        return outs

    def predict(self, x):
        return self.layers(x)[-1]

    def gradients(self, x, gradient):
        outs = self.layers(x)
        of_weights, of_biases = [], []
        for depth in reversed(range(len(self.weights))):
            of_weights.insert(0, outs[depth].T @ gradient)
            if depth < len(self.biases):
                of_biases.insert(0, gradient.sum(axis=0))
            gradient = (gradient @ self.weights[depth].T) * (outs[depth] > 0)
        return of_weights, of_biases

    def read(self, flat):
        stored = [np.zeros_like(w if depth == 0 else w.T) for depth, w in enumerate(self.weights)]
        fill(stored + self.biases, flat)
        self.weights = [w if depth == 0 else w.T.copy() for depth, w in enumerate(stored)]

    def flat(self):
        return flatten([w if depth == 0 else w.T for depth, w in enumerate(self.weights)] + self.biases)


def fill(arrays, flat):
    at = 0
    for array in arrays:
        array[...] = flat[at : at + array.size].reshape(array.shape)
        at += array.size
    assert at == len(flat)


def flatten(arrays):
    return np.concatenate([array.ravel() for array in arrays]) if arrays else np.zeros(0)


def plain_twin(settings, inputs, width, *, bias):
    match settings.kind:
        case "linear":
            return PlainLinear(inputs, width, bias=bias)
        case "fm":
            return PlainFm(inputs, width, bias=bias, factors=settings.factors)
        case "mlp":
            return PlainMlp(inputs, width, bias=bias, hidden=settings.hidden)


class PlainRule:
    """An update rule by torch's formulas. What it keeps is zero at first, one value per parameter."""

    def __init__(self, name, momentum):
        self.name, self.momentum = name, momentum
        self.first, self.second, self.updates = {}, {}, 0

    def apply(self, parameters, gradients, rate):
        self.updates += 1
        for number, (parameter, g) in enumerate(zip(parameters, gradients, strict=True)):
            parameter -= rate * self.direction(number, g)

    def direction(self, number, g):
        first, second = self.first.get(number, 0.0), self.second.get(number, 0.0)
        match self.name:
            case "sgd":
                return g
            case "momentum":
                self.first[number] = self.momentum * first + g
                return self.first[number]
            case "adagrad":
                self.first[number] = first + g**2
                return g / (np.sqrt(self.first[number]) + 1e-10)
            case "adam":
                self.first[number] = self.momentum * first + (1 - self.momentum) * g
                self.second[number] = 0.999 * second + 0.001 * g**2
                mean = self.first[number] / (1 - self.momentum**self.updates)
                square = self.second[number] / (1 - 0.999**self.updates)
                return mean / (np.sqrt(square) + 1e-8)


def plain_gradient(scores, chosen, own):
    """dLoss/dtotal where the prediction is `own`: the score has moved by echo times what it moves by this party alone."""
    loss, joint, labels = scores.objective.loss, scores.objective.joint, scores.labels[chosen]
    before, now = scores.total[chosen], scores.total[chosen] + own - scores.own_at_push[chosen]
    score = (1.0 - scores.echo) * joint.score(before) + scores.echo * joint.score(now)
    return joint.gradient(now, loss.gradient(score, labels))


def plain_learn(twin, rule, l2, x, block, scores):
    """What `Model.learn` promises. `x` holds all rows, dense."""
    for batch, rate in enumerate(block.rates):
        chosen = block.order[block.batch_bounds[batch] : block.batch_bounds[batch + 1]]
        rows = x[block.start + chosen]
        each = plain_gradient(scores, chosen, twin.predict(rows)) * scores.weights[chosen, None]
        of_weights, of_biases = twin.gradients(rows, each / len(chosen))
        shrunk = [gradient + l2 * weight for gradient, weight in zip(of_weights, twin.weights, strict=True)]
        rule.apply(twin.weights + twin.biases, shrunk + of_biases, rate)


def laid_out(twin, weights, biases):
    """Arrays in the shapes of the twin's parameters, as one vector in the order of the compiled model."""
    other = copy(twin)
    other.weights, other.biases = weights, biases
    return other.flat()


def plain_dp_sgd(twin, dp_sgd, update, l2, x, number):
    """What `Model.learn` promises with DP-SGD, row by row; `number` is that of the first batch."""
    block, scores = update
    for batch, rate in enumerate(block.rates):
        chosen = block.order[block.batch_bounds[batch] : block.batch_bounds[batch + 1]]
        total = np.zeros(len(twin.flat()))
        for row in chosen:
            features = x[block.start + row][None]
            towards = plain_gradient(scores, [row], twin.predict(features)) * scores.weights[row]
            gradient = laid_out(twin, *twin.gradients(features, towards))
            total += gradient * min(1.0, dp_sgd.row_clip / max(np.linalg.norm(gradient), 1e-300))
        noisy = dp_sgd.noisy(number + batch, total)
        shrunk = laid_out(twin, [l2 * weight for weight in twin.weights], [0.0 * bias for bias in twin.biases])
        twin.read(twin.flat() - rate * (noisy / len(chosen) + shrunk))
