import os
import pickle
import random

PATH = "evolved.pkl"
best, generation = [random.gauss(0, 1) for _ in range(30)], 0
if os.path.exists(PATH):
    with open(PATH, "rb") as file:
        generation = pickle.load(file)["generation"]
    print("continuing at generation", generation)
while generation < 200000:
    tried = [gene + random.gauss(0, 0.001) for gene in best]
    if sum(gene * gene for gene in tried) < sum(gene * gene for gene in best):
        best = tried
    generation += 1
    if generation % 250 == 0:
        with open(PATH + ".new", "wb") as file:
            pickle.dump({"best": best, "generation": generation}, file)
        os.replace(PATH + ".new", PATH)
