"""Classes of diffusers whose config gives no rope, and what they have instead."""

from __future__ import annotations

_ADDED = "sinusoidal positions, added to the patches"
_CONVOLUTIONS = "no position encoding: it is made of convolutions and attention without positions"

WITHOUT_ROPE: dict[str, str] = {
    "MochiTransformer3DModel": "a rotation whose frequencies are learned, for every head and axis "
    "(pos_frequencies of the weights): the config does not determine them",
    "SanaWMTransformer3DModel": "a rope over patches, and rays of the camera beside it in part of "
    "the lanes, which are input and no positions",
    **dict.fromkeys(
        ("SD3Transformer2DModel", "SD3ControlNetModel", "PixArtTransformer2DModel",
         "DiTTransformer2DModel", "LatteTransformer3DModel", "CogView3PlusTransformer2DModel"),
        _ADDED,
    ),
    **dict.fromkeys(
        ("SanaTransformer2DModel", "SanaControlNetModel"),
        "no position encoding, or sinusoidal positions with interpolation_scale",
    ),
    "AuraFlowTransformer2DModel": "learned absolute positions",
    "PriorTransformer": "learned absolute positions",
    "MiniMaxMusic3RVQDepthDecoder": "learned absolute positions",
    "UVit2DModel": "learned absolute positions",
    "T5FilmDecoder": "sinusoidal positions, added to the frames",
    "RFD4ProteinaTransformer": "biases from features of pairs",
    "Transformer2DModel": "sinusoidal positions, or none, by its kind of input",
    "DreamLiteTransformer2DModel": "no position encoding",
    "TransformerTemporalModel": "sinusoidal positions, or none, by positional_embeddings",
    **dict.fromkeys(
        ("UNet1DModel", "UNet2DModel", "UNet2DConditionModel", "UNet3DConditionModel",
         "UNetMotionModel", "UNetSpatioTemporalConditionModel", "I2VGenXLUNet", "Kandinsky3UNet",
         "StableCascadeUNet", "ControlNetModel", "ControlNetUnionModel", "SparseControlNetModel",
         "AutoencoderKL", "AutoencoderTiny", "AutoencoderDC", "AutoencoderKLWan",
         "AutoencoderKLCogVideoX", "AutoencoderKLHunyuanVideo", "AutoencoderKLMochi",
         "AutoencoderKLLTXVideo", "AutoencoderKLQwenImage", "AutoencoderKLAllegro",
         "AutoencoderKLCosmos", "AutoencoderOobleck", "VQModel"),
        _CONVOLUTIONS,
    ),
}  # fmt: skip
"""Classes of diffusers that are known to have no rope from their config, and what they have."""
