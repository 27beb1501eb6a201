# CKPT=/mnt/disk/model.joblib python env_file.py
import os
import pathlib

import joblib
import numpy as np
from sklearn.linear_model import SGDClassifier

path = pathlib.Path(os.environ.get("CKPT", "model.joblib"))
model, done = joblib.load(path) if path.exists() else (SGDClassifier(random_state=1), 0)
for chunk in range(done, 4000):
    rows = np.random.default_rng(chunk)
    x = rows.normal(size=(40, 8))
    model.partial_fit(x, (x[:, 0] > x[:, 1]).astype(int), classes=[0, 1])
    if chunk % 4 == 3:
        joblib.dump((model, chunk + 1), path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)
