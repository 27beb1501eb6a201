"""A classifier of sequences, in the manner of Hugging Face's examples with its Trainer."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(3)
config = BertConfig(
    vocab_size=32,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=2,
)
model = BertForSequenceClassification(config)
rows = torch.randint(32, (96, 8), generator=torch.Generator().manual_seed(1))
dataset = [{"input_ids": row, "labels": (row[0] > 15).long()} for row in rows]
arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=3,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    warmup_steps=4,
    gradient_accumulation_steps=2,
    logging_steps=5,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=dataset)
trainer.train()
