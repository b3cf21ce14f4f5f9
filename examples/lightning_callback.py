"""Lightning: a callback says whether the rate is right, and ends hopeless runs."""

import lightning.pytorch as pl
import torch

from surefoot.integrations.lightning import StabilityCallback
from surefoot.monitor import DeltaExplosion, NonFinite


class Regression(pl.LightningModule):
    """A line through some points."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        """As always."""
        inputs, targets = batch
        return (self.layer(inputs) - targets).square().mean()

    def configure_optimizers(self):
        """Any optimizer; this one has far too small a rate."""
        return torch.optim.AdamW(self.parameters(), lr=1e-5)


inputs = torch.randn(128, 4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
callback = StabilityCallback(stop=[NonFinite(), DeltaExplosion()])
trainer = pl.Trainer(
    accelerator="cpu", max_epochs=3, callbacks=[callback], logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(Regression(), loader)
print(callback.monitor.verdict())
