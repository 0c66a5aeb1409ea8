"""The Trainer of transformers, on a small model of its own configuration; nothing is downloaded."""
import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
words = torch.randint(0, 64, (128, 8), generator=torch.Generator().manual_seed(1))
data = [{"input_ids": row, "labels": int(row[0] > 32)} for row in words]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=8, num_train_epochs=3, gradient_accumulation_steps=2,
                                  report_to=[], use_cpu=True, save_strategy="no", eval_strategy="epoch", disable_tqdm=True)
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    print("steps", trainer.state.global_step)
