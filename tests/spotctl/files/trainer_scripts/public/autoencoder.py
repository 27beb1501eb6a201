"""An autoencoder, in the manner of Lightning's first example."""

import lightning as L
import torch
import torch.nn.functional as F
import torch.utils.data as data


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
        self.decoder = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 64))

    def training_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


L.seed_everything(4)
pictures = torch.rand(120, 8, 8)
train, val = data.random_split(data.TensorDataset(pictures, pictures.sum((1, 2))), [100, 20])
model = LitAutoEncoder()
trainer = L.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(model, data.DataLoader(train, batch_size=10, shuffle=True), data.DataLoader(val))
