"""A language model with the Trainer of Hugging Face: `SpotCallback` carries it through
evictions."""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.utils import logging

from spotctl.integrations.transformers import SpotCallback

WORDS = 64


class Counting(Dataset):
    """Rows of numbers that go up by the same amount, modulo 64: the model learns to continue
    them."""

    def __init__(self, rows=2000, length=16):
        first, by = torch.randint(WORDS, (rows, 1)), torch.randint(1, 8, (rows, 1))
        self.rows = (first + by * torch.arange(length)) % WORDS

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return {"input_ids": self.rows[row], "labels": self.rows[row]}


# the logs show what the script prints, and no progress bar for each save
logging.set_verbosity_error()
logging.disable_progress_bar()
torch.manual_seed(1)
data = Counting()
config = GPT2Config(
    vocab_size=WORDS,
    n_positions=16,
    n_embd=64,
    n_layer=2,
    n_head=2,
    bos_token_id=None,
    eos_token_id=None,
)
arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=15,
    per_device_train_batch_size=50,
    learning_rate=2e-3,
    logging_steps=60,
    save_strategy="no",  # SpotCallback decides when
    report_to=[],
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
spot = SpotCallback()
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=[spot])
trainer.train(resume_from_checkpoint=spot.newest())
print(f"trained {trainer.state.global_step} steps, loss {trainer.evaluate(data)['eval_loss']:.4f}")
