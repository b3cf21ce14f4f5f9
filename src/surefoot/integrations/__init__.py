"""Thin adapters to the frameworks in which people train: one module each, loaded only when it is imported.

======================================  ==========================  ===============================================
module                                  needs                       gives
======================================  ==========================  ===============================================
``surefoot.integrations.lightning``     ``surefoot[lightning]``     ``find_lr``, ``StabilityCallback`` for Lightning
``surefoot.integrations.transformers``  ``surefoot[transformers]``  ``find_lr``, ``StabilityCallback`` for the Trainer
``surefoot.integrations.optuna``        ``surefoot[optuna]``        ``PartialBoundPruner`` and ``report``
``surefoot.integrations.tensorboard``   ``surefoot[tensorboard]``   ``TensorBoardWriter``
``surefoot.integrations.optax``         ``surefoot[jax]``           ``sgd, sps, ngn, log_ngn, power_step``
======================================  ==========================  ===============================================
"""
