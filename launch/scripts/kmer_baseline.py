#!/usr/bin/env python3
"""What short words alone tell: a logistic regression on the k-mers of labelled documents, to compare a model with.

    kmer_baseline.py data/gene-starts.h5 --letters ACGT
    kmer_baseline.py data/proteins-go.h5 --letters ACDEFGHIKLMNPQRSTVWY

    longstride eval runs/proteins-go-bigbird --split test --losses losses.npy
    kmer_baseline.py data/proteins-go.h5 --losses losses.npy --context 1024

It learns from train and prints the accuracy of test and its average precision: over all pairs of document and label, and
the mean over labels. With --losses both are those of a model, by the losses of all its windows. It needs NumPy and h5py.
"""
import packaged_data as data

try:
    import h5py
    import numpy as np
except ImportError as error:
    data.refuse(f"{error}; kmer_baseline.py needs NumPy and h5py: install them with pip")


class Split:
    """Documents and their targets, (documents, answers) of 0 and 1."""

    def __init__(self, file, name, answers=None):
        self.bytes, self.ends = file[name][:], file[f"{name}_boundaries"][:]
        labels = file[f"{name}_labels"][:].astype(np.int64)
        self.classes = labels.ndim == 1
        if self.classes:
            self.targets = np.eye(answers or labels.max() + 1, dtype=np.float32)[labels]
        else:
            self.targets = labels.astype(np.float32)

    def __len__(self):
        return len(self.ends) - 1

    def words(self, numbers, k, letters):
        """(documents, letters^k) square roots of the shares of words, a hundredfold."""
        digit = np.full(256, -1)
        digit[np.frombuffer(letters.encode(), np.uint8)] = np.arange(len(letters))
        out = np.zeros((len(numbers), len(letters) ** k), np.float32)
        for row, number in enumerate(numbers):
            digits = digit[self.bytes[self.ends[number]:self.ends[number + 1]]]
            count = max(0, len(digits) - k + 1)
            places = np.stack([digits[i:i + count] for i in range(k)])
            word = sum(places[i] * len(letters) ** (k - 1 - i) for i in range(k))[(places >= 0).all(0)]
            out[row] = np.sqrt(np.bincount(word, minlength=out.shape[1]) / max(1, len(word)))
        return 10 * out


def probabilities(scores, classes):
    if not classes:
        return 1 / (1 + np.exp(-scores))
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def learn(train, o):
    """Weights and biases, by Adam."""
    drawn, rate = np.random.default_rng(1), 0.02
    shape = (len(o.letters) ** o.k, train.targets.shape[1])
    weights = [np.zeros(shape, np.float32), np.zeros(shape[1], np.float32)]
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
    steps = o.passes * -(-len(train) // 512)
    for step in range(1, steps + 1):
        if (step - 1) % (steps // o.passes) == 0:
            order = drawn.permutation(len(train))
        numbers = np.take(order, range((step - 1) * 512, step * 512), mode="wrap")
        words = train.words(numbers, o.k, o.letters)
        error = (probabilities(words @ weights[0] + weights[1], train.classes) - train.targets[numbers]) / len(numbers)
        for w, (m, v), gradient in zip(weights, moments, (words.T @ error + 1e-5 * weights[0], error.sum(0))):
            m += 0.1 * (gradient - m)
            v += 0.001 * (gradient ** 2 - v)
            w -= rate * (1 - step / steps) * (m / (1 - 0.9 ** step)) / (np.sqrt(v / (1 - 0.999 ** step)) + 1e-8)
    return weights


def average_precision(scores, targets):
    right = targets[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    return float((precision * right).sum() / max(1, right.sum()))


def from_losses(path, test, context):
    """A window's losses are those of its document; those of several windows are averaged."""
    losses = np.load(path).astype(np.float64)
    windows = -(-np.diff(test.ends) // context)
    if len(losses) != windows.sum() or (not test.classes and losses.shape[1] != test.targets.shape[1]):
        data.refuse(f"{path}: has {losses.shape} losses, but test has {windows.sum()} windows of {context}; evaluate all of "
                    "test, and set --context to that of the recipe")
    if test.classes:
        data.refuse(f"{path}: of classes `eval` itself prints the accuracy; give the losses of objective labels")
    target = np.repeat(test.targets, windows, 0)
    right = np.exp(-losses)
    scores = np.where(target > 0, right, 1 - right)
    return np.add.reduceat(scores, np.cumsum(windows) - windows) / windows[:, None]


def main():
    parser = data.parser_of(__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--letters", default="ACGT")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--losses")
    parser.add_argument("--context", type=int, default=1024)
    o = parser.parse_args()
    if len(o.letters) ** o.k > 100_000 or o.k < 1 or not o.letters.isascii() or len(set(o.letters)) < len(o.letters):
        data.refuse(f"--letters is {o.letters} and --k {o.k}: there may be 100,000 words of different letters")
    try:
        with h5py.File(o.dataset) as file:
            train = Split(file, "train")
            test = Split(file, "test", train.targets.shape[1])
    except (OSError, KeyError) as error:
        data.refuse(f"{o.dataset}: is no dataset of labelled documents ({error}); make it with `longstride prepare bytes`")
    if o.losses:
        scores = from_losses(o.losses, test, o.context)
    else:
        weight, bias = learn(train, o)
        scores = np.concatenate([test.words(range(i, min(i + 512, len(test))), o.k, o.letters) @ weight + bias
                                 for i in range(0, len(test), 512)])
        scores = probabilities(scores, test.classes)
    right = scores.argmax(1) == test.targets.argmax(1) if test.classes else (scores >= 0.5) == (test.targets > 0)
    mean = np.mean([average_precision(scores[:, i], test.targets[:, i]) for i in range(scores.shape[1])])
    print(f"accuracy {right.mean():.4f}, average precision {average_precision(scores.ravel(), test.targets.ravel()):.4f}, "
          f"mean over labels {mean:.4f}, of {len(test):,} documents")


if __name__ == "__main__":
    main()
