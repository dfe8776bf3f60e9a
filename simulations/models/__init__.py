"""Models as tasks: one float32 vector, first parameters, a loss and a score."""

from __future__ import annotations

from simulations.models.convolutional import BlockCnnTask, CnnTask, Lenet5Task, TinyCnnTask
from simulations.models.dense import MlpTask, ReluMlpTask
from simulations.models.layout import ParameterLayout, Vector
from simulations.models.linear import LogisticTask, SvmTask
from simulations.models.recurrent import LstmClassifierTask, LstmTask
from simulations.models.registry import MODELS, DataShape, ModelOptions, build_task
from simulations.models.task import Evaluation, Task

__all__ = [
    "MODELS",
    "BlockCnnTask",
    "CnnTask",
    "DataShape",
    "Evaluation",
    "Lenet5Task",
    "LogisticTask",
    "LstmClassifierTask",
    "LstmTask",
    "MlpTask",
    "ModelOptions",
    "ParameterLayout",
    "ReluMlpTask",
    "SvmTask",
    "Task",
    "TinyCnnTask",
    "Vector",
    "build_task",
]
