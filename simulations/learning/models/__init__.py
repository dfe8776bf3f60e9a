"""Models as tasks: one float32 vector, first parameters, a loss and a score."""

from __future__ import annotations

from simulations.learning.models.convolutional import BlockCnnTask, CnnTask, Lenet5Task, TinyCnnTask
from simulations.learning.models.dense import MlpTask, NgramTask, ReluMlpTask
from simulations.learning.models.layout import ParameterLayout, Vector
from simulations.learning.models.linear import LogisticTask, SvmTask
from simulations.learning.models.module import Loss, ModuleTask
from simulations.learning.models.recurrent import LstmClassifierTask, LstmTask
from simulations.learning.models.registry import MODELS, DataShape, ModelOptions, build_task
from simulations.learning.models.task import Evaluation, Task

__all__ = [
    "MODELS",
    "BlockCnnTask",
    "CnnTask",
    "DataShape",
    "Evaluation",
    "Lenet5Task",
    "LogisticTask",
    "Loss",
    "LstmClassifierTask",
    "LstmTask",
    "MlpTask",
    "ModelOptions",
    "ModuleTask",
    "NgramTask",
    "ParameterLayout",
    "ReluMlpTask",
    "SvmTask",
    "Task",
    "TinyCnnTask",
    "Vector",
    "build_task",
]
