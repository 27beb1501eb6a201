"""MLP regression from scratch in numpy (with Adam). Course project, part 3: "long runs".

Run `python np_mlp.py`. If it is interrupted, run it again and it goes on where it was.
Delete the folder np_state/ to begin anew.
"""

import glob
import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the lab machines get very slow otherwise
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np

STATE_DIR = "np_state"
N_ITERS = 45000
SAVE_EVERY = 750
PRINT_EVERY = 100
BATCH = 256
LR = 3e-4
SIZES = [20, 256, 256, 1]


def target(x):
    return (np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] - np.abs(x[:, 3]) + np.cos(2 * x[:, 4] * x[:, 5]))[:, None]


def init_params(rng):
    params = {}
    for i, (a, b) in enumerate(zip(SIZES[:-1], SIZES[1:])):
        params["W%d" % i] = rng.normal(0, np.sqrt(2 / a), (a, b))
        params["b%d" % i] = np.zeros(b)
    return params


def forward(params, x):
    acts = [x]
    n = len(SIZES) - 1
    for i in range(n):
        z = acts[-1] @ params["W%d" % i] + params["b%d" % i]
        acts.append(np.maximum(z, 0) if i < n - 1 else z)
    return acts


def backward(params, acts, y):
    grads = {}
    delta = 2 * (acts[-1] - y) / len(y)
    for i in reversed(range(len(SIZES) - 1)):
        grads["W%d" % i] = acts[i].T @ delta
        grads["b%d" % i] = delta.sum(0)
        if i > 0:
            delta = (delta @ params["W%d" % i].T) * (acts[i] > 0)
    return grads


def save_state(it, params, m, v):
    os.makedirs(STATE_DIR, exist_ok=True)
    arrays = {}
    for k in params:
        arrays["p_" + k], arrays["m_" + k], arrays["v_" + k] = params[k], m[k], v[k]
    np.savez(os.path.join(STATE_DIR, "state_%d.npz" % it), **arrays)
    with open(os.path.join(STATE_DIR, "progress.json"), "w") as f:
        json.dump({"iter": it, "time": time.time()}, f)


def age(path):
    return time.time() - os.path.getmtime(path)


def load_state(params, m, v):
    """Take the newest state file, if there is one, and return the iteration to continue from."""
    files = glob.glob(os.path.join(STATE_DIR, "state_*.npz"))
    if not files:
        return 0
    newest = sorted(files, key=age)[-1]
    with np.load(newest) as data:
        for k in params:
            params[k], m[k], v[k] = data["p_" + k], data["m_" + k], data["v_" + k]
    with open(os.path.join(STATE_DIR, "progress.json")) as f:
        return json.load(f)["iter"]


def main():
    params = init_params(np.random.default_rng(0))
    m = {k: np.zeros_like(p) for k, p in params.items()}
    v = {k: np.zeros_like(p) for k, p in params.items()}
    xv = np.random.default_rng(999).uniform(-1.5, 1.5, (1000, SIZES[0]))
    yv = target(xv)

    it = load_state(params, m, v)
    if it > 0:
        print("Resumed from iteration %d" % it)
    t0 = time.time()
    while it < N_ITERS:
        rng = np.random.default_rng([1, it])
        x = rng.uniform(-1.5, 1.5, (BATCH, SIZES[0]))
        acts = forward(params, x)
        y = target(x) + 0.05 * rng.normal(size=(BATCH, 1))
        grads = backward(params, acts, y)
        it += 1
        for k in params:
            m[k] = 0.9 * m[k] + 0.1 * grads[k]
            v[k] = 0.999 * v[k] + 0.001 * grads[k] ** 2
            mh, vh = m[k] / (1 - 0.9**it), v[k] / (1 - 0.999**it)
            params[k] = params[k] - LR * mh / (np.sqrt(vh) + 1e-8)
        if it % PRINT_EVERY == 0:
            mse = np.mean((forward(params, xv)[-1] - yv) ** 2)
            print(
                "iter %6d / %d   batch mse %.5f   val mse %.5f   (%.1fs)"
                % (it, N_ITERS, np.mean((acts[-1] - y) ** 2), mse, time.time() - t0),
                flush=True,
            )
        if it % SAVE_EVERY == 0:
            save_state(it, params, m, v)
    print("finished, val mse %.5f" % np.mean((forward(params, xv)[-1] - yv) ** 2))


if __name__ == "__main__":
    main()
