"""Training scripts as people have them; none knows of surefoot."""

LOOP = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--debug", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
X = torch.randn(1024, 10)
data = torch.utils.data.TensorDataset(X, X.sum(1, keepdim=True).sin())
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

def main():
    losses = []
    for epoch in range(args.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    print(args.debug, *losses[:3])

if __name__ == "__main__":
    main()
"""

SEVERAL = """
import signal, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
torch.manual_seed(0)
G = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
D = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
opt_g, opt_d = (torch.optim.Adam(net.parameters(), lr=1e-3) for net in (G, D))
bce = torch.nn.functional.binary_cross_entropy_with_logits
one, zero = torch.ones(64, 1), torch.zeros(64, 1)
for step in range(60):
    fake = G(torch.randn(64, 8))
    opt_d.zero_grad()
    (bce(D(torch.randn(64, 2) + 2), one) + bce(D(fake.detach()), zero)).backward()
    opt_d.step()
    opt_g.zero_grad()
    loss = bce(D(fake), one)
    loss.backward()
    opt_g.step()
    if step == 0:
        print(loss.item())

X, model = torch.randn(256, 10), torch.nn.Linear(10, 1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), batch_size=8)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
print(model(X[:32]).square().mean().item())
for epoch in range(6):
    for i, (x,) in enumerate(loader):
        scaler.scale(model(x).square().mean() / 4).backward()
        if (i + 1) % 4 == 0:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    scheduler.step()

point, mirror, plane, last = (torch.nn.Parameter(torch.ones(3)) for _ in range(4))
deaf = torch.optim.Adam([point])
for _ in range(30):
    (point.grad,) = torch.autograd.grad(point.square().sum(), point)
    deaf.step()

def train():
    searching = torch.optim.LBFGS([mirror])

    def closure():
        searching.zero_grad()
        loss = mirror.square().sum()
        loss.backward()
        return loss

    for _ in range(5):
        searching.step(closure)
    del searching

train()

class Rateless(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": None})

    def step(self, closure=None):
        return "stepped"

rateless = Rateless([plane])
print(rateless.step())

optimizer = torch.optim.SGD([last], lr=0.1)

def closure():
    optimizer.zero_grad()
    loss = last.square() if step == 60 else last.square().sum()
    loss.backward()
    return loss

try:
    for step in range(100_000):
        optimizer.step(closure)
except RuntimeError:
    signal.raise_signal(signal.SIGINT)
finally:
    print("finally")
"""
"""A GAN, accumulated and scaled gradients, optimizers that cannot be judged, an error in a closure, and Ctrl-C."""

LIGHTNING = """
import torch
import lightning.pytorch as pl

torch.manual_seed(0)
X = torch.randn(512, 4)
data = torch.utils.data.TensorDataset(X, X.sum(1, keepdim=True).sin())

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.model(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)

module = Module()
print(module.training_step([part[:16] for part in data.tensors], 0).item())
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer = pl.Trainer(accelerator="cpu", max_epochs=4, accumulate_grad_batches=2, **quiet)
trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8))
"""

TRANSFORMERS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

set_seed(0)
config = GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
                    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
network = GPT2LMHeadModel(config)
rows = [{"input_ids": (torch.arange(8) + i) % 16, "labels": (torch.arange(8) + i) % 16} for i in range(64)]
arguments = TrainingArguments(
    output_dir="out", max_steps=128, per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=1e-2,
    use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, logging_steps=1, logging_first_step=True,
)
trainer = Trainer(network, arguments, train_dataset=rows)
trainer.train()
print(trainer.state.log_history[0]["loss"])
"""

ACCELERATE = """
import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
X = torch.randn(512, 4)
data = torch.utils.data.TensorDataset(X, X.sum(1, keepdim=True).sin())
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
print(torch.nn.functional.mse_loss(model(data.tensors[0][:16]), data.tensors[1][:16]).item())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(4):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
"""

RANKS = """
import sys, torch
import torch.distributed as distributed

distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
sys.stdout.write(f"rank {rank}\\n")  # one write, so that two ranks without buffers cannot mix
distributed.destroy_process_group()
"""
