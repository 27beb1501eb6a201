"""Out-of-core classification: a linear model learns from one batch of points after another."""

import time

import joblib
import numpy as np
from sklearn.linear_model import SGDClassifier

N_BATCHES = 60
all_classes = np.array([0, 1])
rng = np.random.RandomState(7)
truth = rng.normal(size=20)


def iter_minibatches(count):
    for number in range(count):
        batch = np.random.RandomState(number)
        points = batch.normal(size=(500, 20))
        yield points, (points @ truth > 0).astype(int)


classifier = SGDClassifier(random_state=0)
for i, (X_train, y_train) in enumerate(iter_minibatches(N_BATCHES)):
    classifier.partial_fit(X_train, y_train, classes=all_classes)
    print(f"batch {i} samples {classifier.t_ - 1:.0f}", flush=True)
    time.sleep(0.2)

joblib.dump(classifier, "classifier.joblib")
