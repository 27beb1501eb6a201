#!/usr/bin/env bash
# Trainings of one's own on machines that are evicted: an image classifier, a language model, and topics of documents.
# Each draws its loss and its machines over time; --engine local (the default) does the same with real processes.
# Needs: pip install '.[torch]' scikit-learn
# The plots stay if you name a folder for them: examples/networks_and_topics.sh plots
set -euo pipefail
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
[ $# -gt 0 ] || trap 'rm -rf "$folder"' EXIT

step() { printf '\n$ %s\n' "$*"; "$@"; }

# Machines two hundred times as slow: these trainings are small, and would be over before the new nodes had started.
chaos="at clock 6 kill 1; at clock 8 join 2; at clock 18 evict half warn 5s; at clock 30 join 2; slow worker 100% by 19900%"
elastic=(--engine sim --nodes 1+3 --deterministic --chaos "$chaos")

step spotctl lab train examples/trainers/digits.py --clocks 60 "${elastic[@]}" --plot "$folder/digits.png" \
  --out "$folder/digits.npz"
python3 - "$folder" <<'PYTHON'
import sys

import numpy as np

sys.path.append("examples/trainers")
from digits import TRAINED, Classifier, digits, trainer

net = Classifier()
net.load_state_dict(trainer().state_dict(np.load(f"{sys.argv[1]}/digits.npz")))
images, labels = digits(slice(TRAINED, None)).tensors
print(f"\nOf images that it has not seen, the network recognizes {(net(images).argmax(1) == labels).float().mean():.0%}.")
PYTHON
step spotctl lab train examples/trainers/language_model.py --arg steps=40 --clocks 40 "${elastic[@]}" --plot "$folder/text.png"

# The documents are the longer paragraphs of Python's own documentation.
python3 - "$folder/paragraphs.txt" <<'PYTHON'
import sys
from pathlib import Path
from pydoc_data.topics import topics

paragraphs = [" ".join(one.split()) for topic in topics.values() for one in topic.split("\n\n")]
Path(sys.argv[1]).write_text("\n".join(one for one in paragraphs if len(one) > 300))
PYTHON
step spotctl lab train lda --arg file="$folder/paragraphs.txt" --arg topics=8 --clocks 20 "${elastic[@]}" \
  --plot "$folder/topics.png" --out "$folder/topics.npz"

printf '\nThe words that are most typical of each topic:\n'
python3 - "$folder" <<'PYTHON'
import sys

import numpy as np

from agileml.apps.lda import read_corpus

counts = np.load(f"{sys.argv[1]}/topics.npz")["words"] + 0.5
typical = (counts / counts.sum(axis=0)) / (counts / counts.sum(axis=0)).sum(axis=1, keepdims=True) * np.log(counts)
names = read_corpus(f"{sys.argv[1]}/paragraphs.txt", 10).names
for topic in range(counts.shape[1]):
    print(" ", *(names[word] for word in np.argsort(-typical[:, topic])[:8]))
PYTHON
