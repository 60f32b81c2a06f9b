"""The few layers every Llama-like decoder is built of."""

from minisgl.layers.attention import AttentionLayer
from minisgl.layers.linear import FusedLinear, Linear, can_pack
from minisgl.layers.mlp import GatedMLP
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import Rotary, apply_rotary

__all__ = ["AttentionLayer", "FusedLinear", "GatedMLP", "Linear", "RMSNorm", "Rotary", "apply_rotary", "can_pack"]
