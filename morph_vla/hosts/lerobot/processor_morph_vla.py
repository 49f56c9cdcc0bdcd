"""LeRobot's processors around our policy: names, a batch axis, the device; our policy normalises itself."""

from typing import Any

from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    DeviceProcessorStep,
    PolicyProcessorPipeline,
    RenameObservationsProcessorStep,
)
from lerobot.processor.factory import make_policy_processor_pipelines

from morph_vla.hosts.lerobot.configuration_morph_vla import MorphVlaConfig


def make_morph_vla_pre_post_processors(
    config: MorphVlaConfig, dataset_stats: Any = None
) -> tuple[PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """Before the policy, and after it; a dataset's statistics are not asked."""
    before = [
        RenameObservationsProcessorStep(rename_map={}),
        AddBatchDimensionProcessorStep(),
        DeviceProcessorStep(device=config.device or "cpu"),
    ]
    return make_policy_processor_pipelines(before, [DeviceProcessorStep(device="cpu")])
