"""Lightning's Trainer, two micro-batches for each step, with a validation."""
import logging
import warnings

import lightning
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def training_step(self, batch, _index):
        x, y = batch
        return F.mse_loss(self.layers(x), y)

    def validation_step(self, batch, _index):
        x, y = batch
        self.log("validation", F.mse_loss(self.layers(x), y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


x = torch.randn(256, 16)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=2)
trainer.fit(Model(), loader, loader)
print("steps", trainer.global_step)
