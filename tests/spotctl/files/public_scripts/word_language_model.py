import argparse
import math
import time

import data
import model
import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description="Language model on a corpus of words")
parser.add_argument("--data", type=str, default="./data/wikitext-2", help="location of the data corpus")
parser.add_argument("--model", type=str, default="LSTM", help="type of network")
parser.add_argument("--emsize", type=int, default=200)
parser.add_argument("--lr", type=float, default=20)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--batch_size", type=int, default=20, metavar="N")
parser.add_argument("--bptt", type=int, default=35)
parser.add_argument("--save", type=str, default="model.pt", help="path to save the final model")
parser.add_argument("--dry-run", action="store_true")
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
corpus = data.Corpus(args.data)


def batchify(source, bsz):
    nbatch = source.size(0) // bsz
    return source.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, 10)
ntokens = len(corpus.dictionary)
model = model.RNNModel(args.model, ntokens, args.emsize).to(device)
criterion = nn.NLLLoss()


def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def evaluate(data_source):
    model.eval()
    total_loss = 0.0
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, args.bptt):
            data, targets = get_batch(data_source, i)
            total_loss += len(data) * criterion(model(data), targets).item()
    return total_loss / (len(data_source) - 1)


def train():
    model.train()
    for i in range(0, train_data.size(0) - 1, args.bptt):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        loss = criterion(model(data), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)


lr = args.lr
best_val_loss = None
try:
    for epoch in range(1, args.epochs + 1):
        epoch_start_time = time.time()
        train()
        val_loss = evaluate(val_data)
        print(
            f"| end of epoch {epoch:3d} | time: {time.time() - epoch_start_time:5.2f}s | ppl {math.exp(val_loss):8.2f}"
        )
        if not best_val_loss or val_loss < best_val_loss:
            with open(args.save, "wb") as f:
                torch.save(model, f)
            best_val_loss = val_loss
        else:
            lr /= 4.0
except KeyboardInterrupt:
    print("Exiting from training early")

with open(args.save, "rb") as f:
    model = torch.load(f)
print(f"| End of training | test loss {evaluate(val_data):5.2f}")
