"""Thin adapters to the frameworks in which people train: one module each, loaded only when it is imported.

======================================  ==========================  ===============================================
module                                  needs                       gives
======================================  ==========================  ===============================================
``surefoot.integrations.lightning``     ``surefoot[lightning]``     ``StabilityCallback`` for Lightning's Trainer
``surefoot.integrations.transformers``  ``surefoot[transformers]``  ``StabilityCallback`` for Transformers' Trainer
``surefoot.integrations.optuna``        ``surefoot[optuna]``        ``PartialBoundPruner`` and ``report``
``surefoot.integrations.tensorboard``   ``surefoot[tensorboard]``   ``TensorBoardWriter``
``surefoot.integrations.optax``         ``surefoot[jax]``           ``sgd, sps, ngn, log_ngn, power_step``
======================================  ==========================  ===============================================
"""
