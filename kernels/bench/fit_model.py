#!/usr/bin/env python3
"""Fits the cost model's correction to measured times, and tells what it would miss on models it never saw.

    gemm_bench --suite models-fit --count 6000 --sweep --quick --pool-times --repeats 3 --json fit.json   on the GPU; or broad-fit
    gemm_bench --features fit.csv --from fit.json
    fit_model.py fit.csv [more.csv ..] --out kernels/cuda/tuning/model_correction_trees.inc --sample FILE
    fit_model.py more.csv --upon direct_trees.inc --out kernels/cuda/tuning/model_correction_float16_trees.inc
    fit_model.py batched*.csv --reach 0.3 --out kernels/cuda/tuning/model_correction_float16_batched_trees.inc   of layouts.py --pool
    fit_model.py narrow*.csv --reach 0.3 --out kernels/cuda/tuning/model_correction_fp8_narrow_trees.inc
    fit_model.py h200*.csv --other h100*.csv --choice --upon trees.inc --upon-stream fp8_stream_trees.inc --trees 80 --out ..

Needs numpy and lightgbm. The correction is the logarithm of the measured time over the rates' (model.h), by boosted
regression trees over the columns behind `us`. What decides between kernels counts: a pair weighs exp(-(r - 1) / reach), r
its time over the shape's best, and is left out above 2.2. Where times are far apart, as in the narrow suites, a reach of 0.3
keeps slow kernels from being taken for fast ones. Cross-validation leaves models out, never shapes: the weights of
one model are all in one part, and weights of no model in one by themselves. The files must hold no times of the other half.
--only and --skip choose among kernels' names: stream-k's have trees of their own. --upon fits to what trees miss that stay.
--choice fits to what the choice loses: a shape's kernels are told apart, and what all of them have in common is left as it
is. --other are times of another card, which count less.
"""

import argparse
import csv
import re

import lightgbm
import numpy as np

RANGES = ((1, 16), (17, 64), (65, 512), (513, 4096), (4097, 1 << 20), (1, 1 << 20))  # of rows, as in models.h, and beyond
PARTS = 3
LEAST, MOST = -0.45, 0.6  # model_correction.h
UNIT = 1e-5
SOFTNESS = 0.03  # of the choice, in logarithms of time: about what three calls of a kernel differ by
LOSS = 3  # what the choice loses, beside squared errors
OTHER = 0.3  # weight of the other card's shapes
PARAMETERS = dict(objective="l2", num_leaves=48, learning_rate=0.1, min_data_in_leaf=40, lambda_l2=2.0, max_bin=127,
                  feature_fraction=0.8, boost_from_average=False,  # a mean would not fit into a leaf's 16 bits
                  deterministic=True, force_row_wise=True, seed=1, num_threads=2, verbose=-1)


class Times:
    """Pairs of shape and kernel, as arrays; `shape` numbers the shapes of each file."""

    def __init__(self, paths, wanted=lambda kernel: True, reach=0.15):
        self.names, rows, self.shapes, self.models, self.kernels, self.paths = None, [], [], [], [], []
        shape_of = []
        for path in paths:
            seen = {}
            with open(path, newline="") as file:
                reader = csv.reader(file)
                self.names = next(reader)[6:]
                for model, m, n, k, kernel, *numbers in reader:
                    if not wanted(kernel):
                        continue
                    key = (int(m), int(n), int(k))
                    if key not in seen:
                        if not model:
                            raise SystemExit(f"{path}: weights {n}x{k} are of no model of the fitting half")
                        seen[key] = len(self.shapes)
                        self.shapes.append(key)
                        self.models.append(model)
                        self.paths.append(path)
                    shape_of.append(seen[key])
                    self.kernels.append(kernel)
                    rows.append(np.array(numbers, dtype=np.float32))
        table = np.stack(rows)
        self.shape = np.array(shape_of)
        self.us, self.features = table[:, 0].astype(np.float64), table[:, 1:]
        self.rough = self.features[:, 0].astype(np.float64)
        self.best = np.full(len(self.shapes), np.inf)
        np.minimum.at(self.best, self.shape, self.us)
        self.over_best = self.us / self.best[self.shape]
        self.base = np.zeros(len(self.us))  # of trees that stay
        self.streams = self.features[:, self.names.index("streams_k")] > 0
        self.counts = np.ones(len(self.shapes))
        self.target = np.log(self.us / self.rough)
        self.weight = np.exp(-(self.over_best - 1) / reach)


def stand_upon(times, path, of):
    """Takes off the targets of the pairs `of` what the trees of a table make of them."""
    text = open(path, encoding="utf-8").read()

    def rows(name, pattern):
        found = re.search(name + r"\[\] = \{(.*?)\n\};", text, re.S)
        return np.array([[float(x) for x in row.split(", ")] for row in re.findall(pattern, found[1])])

    trees = rows("kTrees", r"\d+, \d+").astype(int)
    nodes = rows("kNodes", r"[-+\d.e]+, \d+, -?\d+, -?\d+")
    leaves = rows("kLeaves", r"-?\d+").ravel()
    thresholds, (features, left, right) = nodes[:, 0].astype(np.float32), nodes[:, 1:].astype(int).T
    for first_node, first_leaf in trees:
        at = np.zeros(len(times.us), dtype=int)
        while (inside := np.flatnonzero(at >= 0)).size:
            node = first_node + at[inside]
            goes_left = times.features[inside, features[node]] <= thresholds[node]
            at[inside] = np.where(goes_left, left[node], right[node])
        times.base[of] += (leaves[first_leaf + ~at] * UNIT)[of]
    times.target[of] = (np.log(times.us / times.rough) - np.clip(times.base, LEAST, MOST))[of]


def corrected(times, booster, of=slice(None), level=0.0):
    correction = times.base[of] + booster.predict(times.features[of]) + level
    return times.rough[of] * np.exp(np.clip(correction, LEAST, MOST))


def fit(times, chosen, trees):
    chosen = chosen & (times.over_best < 2.2)
    data = lightgbm.Dataset(times.features[chosen], times.target[chosen], weight=times.weight[chosen])
    return lightgbm.train(PARAMETERS, data, trees)


def fit_choice(times, chosen, trees):
    """Squared errors within each shape, and what a choice by the predicted times would lose, softened to have a slope."""
    pairs = np.flatnonzero(chosen & (times.over_best < 1.6))
    shapes, shape = np.unique(times.shape[pairs], return_inverse=True)

    def total(values):
        return np.bincount(shape, values, len(shapes))[shape]

    near = times.weight[pairs] / total(times.weight[pairs])
    target = times.target[pairs] - total(near * times.target[pairs])
    loss = np.minimum(np.log(times.over_best[pairs]), 0.4)
    stays = np.log(times.rough[pairs]) + np.clip(times.base[pairs], LEAST, MOST)
    counts = times.counts[times.shape[pairs]]

    def slopes(prediction, _):
        taken = -(stays + prediction) / SOFTNESS
        highest = np.full(len(shapes), -np.inf)
        np.maximum.at(highest, shape, taken)
        taken = np.exp(taken - highest[shape])
        taken /= total(taken)
        slope = LOSS * taken * (total(taken * loss) - loss) / SOFTNESS + 30 * near * (prediction - target)
        curve = LOSS * 0.05 * taken * (1 - taken) / SOFTNESS + 30 * near
        return counts * slope, counts * curve + 1e-3

    data = lightgbm.Dataset(times.features[pairs], np.zeros(len(pairs)))
    return lightgbm.train({**PARAMETERS, "objective": slopes}, data, trees)


def regret(times, seconds):
    """Of each shape, the time of the kernel with the least `seconds` over the best one's, less 1."""
    order = np.lexsort((seconds, times.shape))
    first = np.r_[True, np.diff(times.shape[order]) != 0]
    return times.over_best[order][first] - 1


def report(times, seconds, title):
    rows = np.array([m for m, _, _ in times.shapes])
    missed = 100 * regret(times, seconds)
    for count in sorted(set(times.counts), reverse=True):
        print(title + ("" if count == 1 else ", the other card"))
        for least, most in RANGES:
            part = missed[(rows >= least) & (rows <= most) & (times.counts == count)]
            if not len(part):
                continue
            print(f"  {least:4}..{most:<7} {len(part):5} shapes: mean {part.mean():5.2f} %, 99th percentile "
                  f"{np.percentile(part, 99):5.1f} %, most {part.max():5.1f} %")


def cross_validate(times, trees, fit):
    part_of = {model: i % PARTS for i, model in enumerate(sorted(set(times.models)))}
    part = np.array([part_of[model] for model in times.models])[times.shape]
    seconds = np.empty(len(times.us))
    for i in range(PARTS):
        booster = fit(times, part != i, trees)
        out = part == i
        seconds[out] = corrected(times, booster, out)
    report(times, times.rough * np.exp(np.clip(times.base, LEAST, MOST)), "without these trees")
    report(times, seconds, "corrected, of models that were left out")


def level(times, booster):
    """By how much the times of what is chosen are beyond those that are predicted, as a mean logarithm: a fit to the choice
    makes what it prefers look faster than it is."""
    seconds = corrected(times, booster)
    order = np.lexsort((seconds, times.shape))
    first = order[np.r_[True, np.diff(times.shape[order]) != 0]]
    missed = np.log(times.us[first] / seconds[first])
    return missed[times.counts == 1].mean()


class Tables:
    """A booster as the three tables that model_correction.cc includes; `level` is added to each prediction."""

    def __init__(self, booster, level):
        self.trees, self.nodes, self.leaves = [], [], []
        for tree in booster.dump_model()["tree_info"]:
            self.trees.append((len(self.nodes), len(self.leaves)))
            nodes, leaves = [], []
            self.add(tree["tree_structure"], nodes, leaves)
            if not nodes:
                raise SystemExit("a tree without a split: fit fewer trees")
            self.nodes += nodes
            first = not self.leaves
            self.leaves += [leaf + round(level / UNIT) if first else leaf for leaf in leaves]

    def add(self, at, nodes, leaves):
        if "leaf_value" in at:
            value = round(at["leaf_value"] / UNIT)
            if abs(value) > 32767:
                raise SystemExit(f"a leaf of {at['leaf_value']} does not fit into 16 bits")
            leaves.append(value)
            return ~(len(leaves) - 1)
        index = len(nodes)
        nodes.append(None)
        left = self.add(at["left_child"], nodes, leaves)
        right = self.add(at["right_child"], nodes, leaves)
        if not (at["decision_type"] == "<=" and -128 <= left < 128 and -128 <= right < 128):
            raise SystemExit("a split that the tables cannot hold")
        nodes[index] = (np.float32(at["threshold"]), at["split_feature"], left, right)
        return index

    def text(self, source):
        out = [f"// Written by kernels/bench/fit_model.py: {source}. Do not edit."]
        table(out, "Tree kTrees", (f"{{{a}, {b}}}" for a, b in self.trees))
        table(out, "Node kNodes", (f"{{{t:.9g}, {f}, {a}, {b}}}" for t, f, a, b in self.nodes))
        table(out, "int16_t kLeaves", map(str, self.leaves))
        return "\n".join(out) + "\n"


def table(out, name, entries):
    out.append(f"constexpr {name}[] = {{")
    line = "   "
    for entry in entries:
        if len(line) + len(entry) > 117:
            out.append(line)
            line = "   "
        line += f" {entry},"
    out += [line, "};"]


def write_sample(times, path, shapes, kernels):
    """Evenly taken shapes, each with its fastest kernels: what the model's test reads."""
    with open(path, "w") as file:
        file.write("# m n k, then kernels and their microseconds, the fastest first; of models of the fitting half\n")
        for shape in np.linspace(0, len(times.shapes) - 1, shapes).astype(int):
            pairs = np.flatnonzero(times.shape == shape)
            pairs = pairs[np.argsort(times.us[pairs])][:kernels]
            texts = (f"{times.kernels[i].removeprefix('sm90_fp8_')} {times.us[i]:.2f}" for i in pairs)
            file.write(" ".join(map(str, times.shapes[shape])) + " " + " ".join(texts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--out")
    parser.add_argument("--sample")
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip")
    parser.add_argument("--upon", nargs="+", default=[])
    parser.add_argument("--upon-stream")
    parser.add_argument("--choice", action="store_true")
    parser.add_argument("--reach", type=float, default=0.15)
    parser.add_argument("--other", nargs="+", default=[])
    parser.add_argument("--no-validation", action="store_true")
    arguments = parser.parse_args()
    times = Times(arguments.csv + arguments.other,
                  lambda kernel: arguments.only in kernel and not (arguments.skip and arguments.skip in kernel),
                  arguments.reach)
    times.counts[np.isin(times.paths, arguments.other)] = OTHER
    for path in arguments.upon:
        stand_upon(times, path, ~times.streams if arguments.upon_stream else slice(None))
    if arguments.upon:
        PARAMETERS.update(learning_rate=0.05, num_leaves=24, min_data_in_leaf=40 if arguments.choice else 100)
    if arguments.upon_stream:
        stand_upon(times, arguments.upon_stream, times.streams)
    source = f"{len(times.shapes)} shapes of {len(set(times.models))} models, {len(times.us)} times"
    print(source)
    fits = fit_choice if arguments.choice else fit
    if not arguments.no_validation:
        cross_validate(times, arguments.trees, fits)
    booster = fits(times, np.full(len(times.us), True), arguments.trees)
    raised = level(times, booster) if arguments.choice else 0
    report(times, corrected(times, booster, level=raised), "corrected, of the models that it is fitted to")
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(Tables(booster, raised).text(source))
    if arguments.sample:
        write_sample(times, arguments.sample, 160, 24)


if __name__ == "__main__":
    main()
