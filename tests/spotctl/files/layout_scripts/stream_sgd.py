"""
Out-of-core learning with partial_fit. The model and the position in the stream live in a
sqlite file, so the job can be stopped at any time; just start it again.

usage: stream_sgd.py [state.db]
"""

import os
import pickle
import sqlite3
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import accuracy_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

N_CHUNKS = 7000
CHUNK = 2000
N_FEATURES = 60
CLASSES = np.arange(5)
SAVE_SECONDS = 2

proto = np.random.RandomState(0).randn(5, 3, N_FEATURES)


def chunk(i):
    """The i-th chunk of the "file"."""
    rs = np.random.RandomState(1000 + i)
    y = rs.randint(0, 5, CHUNK)
    X = proto[y, rs.randint(0, 3, CHUNK)] + 2.2 * rs.randn(CHUNK, N_FEATURES)
    return X * np.linspace(0.5, 20, N_FEATURES), y


def open_db(path):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value BLOB)")
    db.execute("CREATE TABLE IF NOT EXISTS history (chunk INTEGER PRIMARY KEY, sgd REAL, mlp REAL, t REAL)")
    return db


def load(db):
    row = db.execute("SELECT value FROM state WHERE key = 'pickle'").fetchone()
    return pickle.loads(row[0]) if row else None


def save(db, st, rows):
    with db:  # one transaction: either everything or nothing
        db.execute("REPLACE INTO state VALUES ('pickle', ?)", (pickle.dumps(st),))
        db.execute("REPLACE INTO state VALUES ('next_chunk', ?)", (st["next"],))
        db.executemany("REPLACE INTO history VALUES (?, ?, ?, ?)", rows)
    rows.clear()


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "stream_state.db"
    db = open_db(path)
    st = load(db)
    if st is None:
        print("no state in %s, starting a new run" % path)
        st = {
            "next": 0,
            "scaler": StandardScaler(),
            "sgd": SGDClassifier(loss="log_loss", alpha=1e-5, random_state=0),
            "mlp": MLPClassifier((48, 48), random_state=0, learning_rate_init=5e-4),
        }
    else:
        print("found state in %s, continuing with chunk %d of %d" % (path, st["next"], N_CHUNKS))

    Xt, yt = chunk(-1)
    rows, last = [], time.time()
    while st["next"] < N_CHUNKS:
        i = st["next"]
        X, y = chunk(i)
        st["scaler"].partial_fit(X)
        X = st["scaler"].transform(X)
        st["sgd"].partial_fit(X, y, classes=CLASSES)
        st["mlp"].partial_fit(X, y, classes=CLASSES)
        st["next"] = i + 1
        if i % 25 == 0:
            Z = st["scaler"].transform(Xt)
            a, b = accuracy_score(yt, st["sgd"].predict(Z)), accuracy_score(yt, st["mlp"].predict(Z))
            rows.append((i, a, b, time.time()))
            print(
                "chunk %5d  seen %8d  sgd acc %.4f  mlp acc %.4f  mlp loss %.4f"
                % (i, (i + 1) * CHUNK, a, b, st["mlp"].loss_),
                flush=True,
            )
        if time.time() - last > SAVE_SECONDS:
            save(db, st, rows)
            last = time.time()
    save(db, st, rows)
    print("done, best mlp acc: %.4f" % db.execute("SELECT max(mlp) FROM history").fetchone())


if __name__ == "__main__":
    main()
