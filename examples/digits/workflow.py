"""Which of twelve models reads handwritten digits best?

    load ── split ──┬── train ── evaluate ──┐
                    ├── train ── evaluate ──┼── choose ── report
                    └── …    (12 lanes)   ──┘

Half of the lanes ask for nodes labelled `zone: west`; the others run wherever there is quota and room. A lane keeps its
model where it was trained: only the score, a few numbers, crosses to wherever the best one is chosen.

The functions are plain ones. `graph()` binds them from Python, `digits.json` names them for HTTP.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

import dag

Labelled = tuple[NDArray[Any], NDArray[Any]]  #: pixels[images][64] in 0..1, digits[images].
Score = dict[str, Any]

SEED = 7
GREYS, SIDE = 16, 8  #: The pictures have the grey levels 0 to 16, and 8 by 8 pixels.
INK, PAPER, ACCENT, FAINT = "#1b2a41", "#ffffff", "#1f6f8b", "#c9d6df"


class Candidate(NamedTuple):
    """A model to try."""

    name: str
    kind: str
    settings: dict[str, float | int | str]


CANDIDATES = (
    Candidate("svm-rbf-soft", "svm", {"kernel": "rbf", "C": 1, "gamma": 0.05}),
    Candidate("svm-rbf-hard", "svm", {"kernel": "rbf", "C": 10, "gamma": 0.05}),
    Candidate("svm-poly", "svm", {"kernel": "poly", "C": 10, "degree": 3}),
    Candidate("svm-linear", "svm", {"kernel": "linear", "C": 1}),
    Candidate("forest-40", "forest", {"n_estimators": 40}),
    Candidate("forest-80", "forest", {"n_estimators": 80}),
    Candidate("forest-140", "forest", {"n_estimators": 140, "max_features": "log2"}),
    Candidate("logistic-tight", "logistic", {"C": 0.02}),
    Candidate("logistic", "logistic", {"C": 0.2}),
    Candidate("neighbours-1", "neighbours", {"n_neighbors": 1}),
    Candidate("neighbours-3", "neighbours", {"n_neighbors": 3}),
    Candidate("neighbours-5", "neighbours", {"n_neighbors": 5, "weights": "distance"}),
)

MODELS = {
    "svm": lambda settings: SVC(**settings),
    "forest": lambda settings: RandomForestClassifier(random_state=SEED, n_jobs=1, **settings),
    "logistic": lambda settings: LogisticRegression(max_iter=500, tol=0.02, **settings),
    "neighbours": lambda settings: KNeighborsClassifier(n_jobs=1, **settings),
}


def load() -> Labelled:
    """Return 1797 pictures of 8 by 8 pixels, and the digit in each."""
    pixels, digits = load_digits(return_X_y=True)
    return pixels / GREYS, digits


def split(labelled: Labelled, test_share: float) -> dict[str, Labelled]:
    """Split into training and test data, with the same frequency of each digit.

    Each training picture is used five times: as it is, and moved by one pixel to each side.
    """
    pixels, digits = labelled
    learn, test, learn_digits, test_digits = train_test_split(pixels, digits, test_size=test_share, stratify=digits, random_state=SEED)
    squares = learn.reshape(-1, SIDE, SIDE)
    moved = [squares, *(np.roll(squares, step, axis) for axis in (1, 2) for step in (-1, 1))]
    return {"learn": (np.concatenate(moved).reshape(-1, SIDE * SIDE), np.tile(learn_digits, len(moved))), "test": (test, test_digits)}


def train(parts: dict[str, Labelled], kind: str, settings: dict[str, Any]) -> ClassifierMixin:
    """Fit a model of this kind to the training data."""
    return MODELS[kind](settings).fit(*parts["learn"])


def evaluate(model: ClassifierMixin, parts: dict[str, Labelled], name: str) -> Score:
    """Return the model's accuracy on the test data; `confusion[shown][read]` counts pictures."""
    pixels, digits = parts["test"]
    read = model.predict(pixels)
    return {"model": name, "accuracy": float(np.mean(read == digits)), "confusion": confusion_matrix(digits, read).tolist()}


def choose(scores: list[Score]) -> Score:
    """Return the score with the highest accuracy; ties go by name."""
    return min(scores, key=lambda score: (-score["accuracy"], score["model"]))


def report(best: Score, scores: list[Score], parts: dict[str, Labelled]) -> dict[str, Any]:
    """Return all scores, the best model, the number of pictures, and a PNG of the best one's errors."""
    ranked = sorted(scores, key=lambda score: (-score["accuracy"], score["model"]))
    return {
        "best": best["model"],
        "accuracy": best["accuracy"],
        "table": [{"model": score["model"], "accuracy": score["accuracy"]} for score in ranked],
        "sizes": {part: len(digits) for part, (_, digits) in parts.items()},
        "confusion": best["confusion"],
        "picture_png": draw(best, ranked),
    }


def draw(best: Score, ranked: list[Score]) -> bytes:
    """Draw a PNG: the best model's confusion matrix on the left, all accuracies on the right."""
    figure = Figure(figsize=(13, 6.2), dpi=110, facecolor=PAPER, layout="constrained")
    FigureCanvasAgg(figure)  # draws in memory: workers have no display
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    draw_confusion(left, np.array(best["confusion"]))
    left.set_title(f"Confusion matrix of {best['model']}", loc="left", color=INK, fontsize=14, fontweight="bold", pad=12)
    draw_ranking(right, ranked)
    right.set_title("Accuracy on pictures that were not learned", loc="left", color=INK, fontsize=14, fontweight="bold", pad=12)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def draw_confusion(axes: Any, counts: NDArray[Any]) -> None:
    """Draw counts in cells, coloured by their share of the row: a rare digit shows as clearly as a frequent one."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    axes.imshow(shares**0.5, cmap="GnBu", vmin=0, vmax=1.15)  # the root lets a single mistake show
    for shown, read in np.ndindex(counts.shape):
        if counts[shown, read]:
            hit = shown == read
            colour = PAPER if hit else "#a4161a"
            axes.text(read, shown, counts[shown, read], ha="center", va="center", color=colour, fontweight="normal" if hit else "bold")
    digits = range(len(counts))
    axes.set(xticks=digits, yticks=digits, xlabel="read as", ylabel="shown")
    axes.set_xticks([digit - 0.5 for digit in digits], minor=True)
    axes.set_yticks([digit - 0.5 for digit in digits], minor=True)
    axes.grid(which="minor", color=PAPER, linewidth=1.5)
    axes.tick_params(which="both", length=0, colors=INK)
    axes.spines[:].set_visible(False)


def draw_ranking(axes: Any, ranked: list[Score]) -> None:
    """Draw a dot per model, the best on top; no bars, because the axis does not begin at zero."""
    accuracies = [score["accuracy"] for score in ranked]
    rows = range(len(ranked))
    axes.hlines(rows, 0, accuracies, color=FAINT, linewidth=1.5, zorder=1)
    axes.scatter(accuracies, rows, s=110, color=[ACCENT] + [INK] * (len(ranked) - 1), zorder=2)
    for row, accuracy in zip(rows, accuracies, strict=True):
        axes.annotate(
            f"{accuracy:.1%}", (accuracy, row), (11, 0), textcoords="offset points", va="center", color=INK, backgroundcolor=PAPER
        )
    axes.set_yticks(rows, [score["model"] for score in ranked])
    axes.set_xlim(min(accuracies) - 0.01, 1.02)  # room for the last label
    axes.set_xticks([tick for tick in axes.get_xticks() if min(accuracies) - 0.01 <= tick <= 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.invert_yaxis()
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)


def graph() -> dict[str, dag.Node]:
    """Return the workflow; its one output is the report."""
    parts = dag.task(split).bind(dag.task(load).bind(), test_share=0.4)
    scores = [lane(parts, candidate, {"zone": "west"} if index % 2 else {}) for index, candidate in enumerate(CANDIDATES)]
    best = dag.task(choose).bind(scores)
    return {"report": dag.task(report).bind(best, scores, parts)}


def lane(parts: dag.Node, candidate: Candidate, labels: dict[str, str]) -> dag.Node:
    """Train and evaluate one model, both under the same labels: only the score leaves the mesh."""
    name, kind, settings = candidate
    model = dag.task(train, name=f"train-{name}", labels=labels).bind(parts, kind, settings)
    score: dag.Node = dag.task(evaluate, name=f"evaluate-{name}", labels=labels).bind(model, parts, name)
    return score
