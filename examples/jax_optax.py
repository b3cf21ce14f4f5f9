"""JAX: the steps as transformations of optax, and a sweep over rates as one compiled program."""

import jax
import jax.numpy as jnp
import optax

import surefoot.integrations.optax as sfx

inputs = jax.random.normal(jax.random.key(0), (64, 8))
targets = inputs.sum(1)


def loss_of(weights):
    return jnp.mean((inputs @ weights - targets) ** 2)


def train(make, rate):
    optimizer = make(rate)

    def step(carry, _):
        weights, state = carry
        loss, gradient = jax.value_and_grad(loss_of)(weights)
        updates, state = optimizer.update(gradient, state, weights, value=loss)
        return (optax.apply_updates(weights, updates), state), None

    weights = jnp.zeros(8)
    (weights, _), _ = jax.lax.scan(step, (weights, optimizer.init(weights)), length=50)
    return loss_of(weights)


rates = jnp.array([0.01, 0.1, 1.0, 10.0, 100.0])
for make in (sfx.sgd, sfx.sps, sfx.ngn):
    losses = jax.jit(jax.vmap(lambda rate, make=make: train(make, rate)))(rates)
    print(f"{make.__name__:4}", *(f"{loss:9.2g}" for loss in losses))
