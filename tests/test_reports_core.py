"""Public reports of real failures that this core decides, each with its right answer.

A docstring names the report by its number in the project's collection and by its public
source. Those about caches, layout and precision are in test_reports_rotation.py, those about
position ids (padding, packing, offsets) in test_positions.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from ropewalk import (
    NTK,
    InputError,
    Linear,
    Llama3,
    LongRoPE,
    NTKCritical,
    Plain,
    Rope,
    YaRN,
    cos_sin,
)
from ropewalk.scaling import ntk_base, ntk_factor


def digits(value: float, given: str) -> bool:
    """Tell whether the value rounds to the number as it was given."""
    places = len(given.partition(".")[2].partition("e")[0])
    if "e" in given:
        return f"{value:.{places}e}".replace("e-0", "e-") == given.replace("e-0", "e-")
    return f"{value:.{places}f}" == given


def plain_of(rope: Rope) -> np.ndarray:
    return rope.with_scaling(Plain()).inv_freq()


# Scaling formulas


def test_softmax_takes_mscale_all_dim_and_the_tables_the_ratio():
    """B029, NVIDIA/Megatron-LM#1429."""
    s = YaRN(factor=40, original_length=4096, mscale=1.0, mscale_all_dim=0.707)
    assert digits(s.softmax_multiplier(), "1.589626")
    assert digits(s.amplitude(), "1.085726")
    assert digits(1.368888 / 1.260804, "1.085726")


def test_an_amplitude_that_a_model_switches_off_is_one():
    """B034, Avarok-Cybersecurity/atlas PR#342."""
    fields = {"factor": 16, "original_length": 4096, "mscale_all_dim": 0}
    by_formula = YaRN(**fields).amplitude()
    assert digits(by_formula, "1.277259")
    assert digits(by_formula**2, "1.631390")
    assert YaRN(**fields, attention_factor=1.0).amplitude() == 1.0


def test_interpolation_divides_the_frequency_and_not_the_base():
    """B037, apache/tvm PR#18576.

    8.068715e-5 is the interpolated frequency of plane 16. The plane lies in the ramp (8.09
    to 17.40), so what YaRN gives there is a blend with the kept one.
    """
    rope = Rope(head_dim=64, theta=150000, scaling=Linear(factor=32))
    interpolated = rope.inv_freq()[16]
    assert digits(interpolated, "8.068715e-5")
    assert digits((32 * 150000) ** -0.5, "4.564355e-4")
    yarn = YaRN(factor=32, original_length=4096, truncate=False)
    low, high = yarn.correction_range(150000, 64)
    share = (16 - low) / (high - low)
    kept = plain_of(rope)[16]
    want = share * interpolated + (1 - share) * kept
    assert abs(rope.with_scaling(yarn).inv_freq()[16] - want) <= 16 * 2.0**-53 * want
    # The last planes are past the ramp: divided by the factor, to the last bit.
    assert (rope.with_scaling(yarn).inv_freq()[18:] == rope.inv_freq()[18:]).all()


def test_planes_before_the_ramp_keep_the_original_base():
    """B038, paiml/aprender PR#2161."""
    rope = Rope(head_dim=128, scaling=YaRN(factor=4, original_length=4096))
    assert rope.scaling.correction_range(1e4, 128)[0] == 20
    assert (rope.inv_freq()[:21] == plain_of(rope)[:21]).all()
    assert digits(rope.inv_freq()[1], "0.865964")


def test_the_blend_of_llama3_is_monotone_and_has_no_jump():
    """B040, ml-explore/mlx-examples PR#907."""
    scaling = Llama3(factor=32, low_freq_factor=1, high_freq_factor=4, original_length=8192)
    rope = Rope(head_dim=64, theta=500000, scaling=scaling)
    divisors = plain_of(rope) / rope.inv_freq()
    assert (divisors[:15] == 1).all()
    for got, given in zip(divisors[15:18], ("1.651329", "3.292262", "9.666729"), strict=True):
        assert digits(got, given)
    assert np.abs(divisors[18:] - 32).max() <= 32 * 2 * 2.0**-53
    # Continuous at both edges: planes just inside are as those just outside.
    for turns, divisor in ((1, 32), (4, 1)):
        for nudge in (1 - 1e-9, 1 + 1e-9):
            # theta such that the plane before the last of 4 makes so many turns.
            theta = (8192 / (2 * math.pi * turns * nudge)) ** 2
            near = Rope(head_dim=4, theta=theta, scaling=scaling)
            assert plain_of(near)[1] / near.inv_freq()[1] == pytest.approx(divisor, rel=1e-6)
    fine = Rope(head_dim=512, theta=500000, scaling=scaling)
    assert (np.diff(plain_of(fine) / fine.inv_freq()) >= -32 * 4 * 2.0**-53).all()


def test_prefill_and_decode_use_one_table():
    """B042, Xilinx/mlir-air PR#1948: an unscaled prefill shows in planes 15 to 21."""
    scaling = Llama3(factor=32, low_freq_factor=1, high_freq_factor=4, original_length=8192)
    rope = Rope(head_dim=64, theta=500000, scaling=scaling)
    one_pass = cos_sin(rope, np.arange(743))
    prefill, decode = cos_sin(rope, np.arange(742)), cos_sin(rope, [742])
    for whole, start, last in zip(one_pass, prefill, decode, strict=True):
        np.testing.assert_array_equal(whole, np.concatenate([start, last]))
    wrong = 742 * (plain_of(rope) - rope.inv_freq())
    assert np.flatnonzero(np.abs(wrong) > 0.1).tolist() == list(range(15, 22))


def test_alpha_and_linear_together_stretch_twice():
    """B044, turboderp/exllama#115."""
    base = ntk_base(10000, 4, 128)
    assert digits(base, "40889.94")
    both = Rope(head_dim=128, theta=base, scaling=Linear(factor=4))
    plain = Rope(head_dim=128).inv_freq()
    assert plain[-1] / both.inv_freq()[-1] == pytest.approx(16, rel=1e-14)


def test_an_alpha_for_another_theta_doubles_up():
    """B045, turboderp/exllama#270."""
    assert digits(ntk_base(10000, 93, 128), "999375.53")
    assert digits(ntk_base(1000000, 93, 128), "99937552.59")


def test_the_alpha_of_an_absolute_base():
    """B046, theroyallab/tabbyAPI#90."""
    assert digits(ntk_factor(10000, 35000, 128), "3.432156")


def test_global_layers_are_scaled_and_local_ones_are_not():
    """B049, Blaizzy/mlx-vlm PR#1709 (Gemma 3)."""
    everywhere = Rope(head_dim=256, theta=1e6, scaling=Linear(factor=8))
    local = Rope(head_dim=256, theta=1e4)
    assert 2915 * everywhere.inv_freq()[0] == 364.375
    assert 2915 * local.inv_freq()[0] == 2915
    cos, _ = everywhere.cos_sin(2915, dtype=np.float64)
    assert abs(cos[0] - math.cos(364.375)) <= 2.0**-51


# LongRoPE and length


def phi(**fields) -> Rope:
    lists = {
        "short_factor": tuple(1 + 0.01 * i for i in range(48)),
        "long_factor": tuple(1 + 0.9 * i for i in range(48)),
    }
    return Rope(
        head_dim=128,
        rotary_dim=96,
        scaling=LongRoPE(**{**lists, "factor": 32.0, "original_length": 4096, **fields}),
    )


def test_a_short_prompt_uses_the_short_list_however_much_is_allocated():
    """B053, ggml-org/llama.cpp#24823: the text decides, not the allocated context."""
    rope = phi()
    cos, sin = cos_sin(rope, np.arange(100))
    short = cos_sin(Rope(head_dim=96, scaling=rope.scaling), np.arange(100), length=4096)
    np.testing.assert_array_equal(cos, short[0])
    np.testing.assert_array_equal(sin, short[1])
    assert (cos != cos_sin(rope, np.arange(100), length=8192)[0]).any()


def test_a_server_can_fix_the_list_for_all_its_texts():
    """B054, vllm-project/vllm PR#27431: never both lists in one cache of keys."""
    rope = phi()
    for longest, is_long in ((4096, False), (4097, True)):
        tables = [cos_sin(rope, np.arange(n), length=longest)[0] for n in (10, 4096, 5000)]
        np.testing.assert_array_equal(tables[0], tables[2][:10])
        np.testing.assert_array_equal(tables[1], tables[2][:4096])
        assert rope.scaling.is_long(longest) is is_long


def test_exactly_the_original_length_is_short():
    """B055, unslothai/unsloth PR#10681."""
    rope = phi()
    divisors = [plain_of(rope) / rope.inv_freq(n) for n in (4096, 4097)]
    np.testing.assert_allclose(divisors[0], rope.scaling.short_factor, rtol=4 * 2.0**-53)
    np.testing.assert_allclose(divisors[1], rope.scaling.long_factor, rtol=4 * 2.0**-53)


def test_factor_lists_follow_the_rotated_lanes():
    """B058, apache/tvm PR#18102: head_dim 128, three quarters rotated, 48 values."""
    assert digits(phi().attention_factor(), "1.190238")
    with pytest.raises(InputError) as caught:
        phi(long_factor=(1.0,) * 64)
    assert str(caught.value).startswith(
        "longrope: long_factor: got 64 values, expected rotary_dim/2 = 48; fix: "
    )


# Questions about numbers


def test_which_base_or_scale_for_four_times_the_context():
    """B177, ggml-org/llama.cpp#2402: 4096 to 16384, base 10000, 128 lanes."""
    assert f"{ntk_base(10000, 4, 128):,.0f}" == "40,890"
    linear = Rope(head_dim=128, scaling=Linear(factor=4))
    # llama.cpp's freq_scale is what the frequencies are multiplied by: 1 / factor.
    np.testing.assert_array_equal(linear.inv_freq(), plain_of(linear) * 0.25)
    yarn = Rope(head_dim=128, scaling=YaRN(factor=4, original_length=4096))
    assert yarn.scaling.stretch * yarn.original_length == 16384


def test_qwen_to_128k():
    """B179, vllm-project/vllm#8793: YaRN, factor 4, 32768, theta 1e6."""
    rope = Rope(head_dim=128, theta=1e6, scaling=YaRN(factor=4, original_length=32768))
    assert rope.scaling.correction_range(1e6, 128) == (23, 40)
    before, after = plain_of(rope), rope.inv_freq()
    assert digits(before[30], "0.00153993")
    assert digits(after[30], "0.00106436")
    assert before[32] == 0.001
    assert digits(after[32], "0.000602941")
    assert before[63] / after[63] == 4
    assert digits(rope.attention_factor(), "1.138629")
    assert rope.scaling.stretch * rope.original_length == 131072


def test_which_theta_for_eight_times_the_context():
    """B182, hiyouga/LlamaFactory#9524: 4096 to 32768, base 10000, 128 lanes."""
    assert f"{ntk_base(10000, 8, 128):,.0f}" == "82,685"
    assert f"{NTKCritical(factor=8, original_length=4096).base(10000):,.0f}" == "192,144"
    longest = Rope(head_dim=128).describe()[-1].wavelength
    assert f"{longest:,.0f}" == "54,410"
    assert digits(Rope(head_dim=128, theta=5e5).describe()[-1].wavelength / 1e6, "2.56")


def test_2048_to_3048():
    """B188, LostRuins/koboldcpp#1847."""
    factor = 3048 / 2048
    assert digits(factor, "1.488")
    assert f"{ntk_base(10000, factor, 128):,.0f}" == "14,977"
    stretched = Rope(head_dim=128, scaling=NTK(factor=factor)).inv_freq()
    assert Rope(head_dim=128).inv_freq()[-1] / stretched[-1] == pytest.approx(factor, rel=1e-15)


def test_kimi_k2():
    """B194, ikawrakow/ik_llama.cpp#1298: theta 50000, factor 64, both mscales 1."""
    fields = {"factor": 64, "original_length": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}
    low, high = YaRN(**fields, truncate=False).correction_range(50000, 64)
    assert digits(low, "8.914")
    assert digits(high, "19.165")
    s = YaRN(**fields)
    assert s.correction_range(50000, 64) == (8, 20)
    assert s.amplitude() == 1.0
    assert digits(math.sqrt(s.softmax_multiplier()), "1.415888")
    assert digits(s.softmax_multiplier(), "2.004740")
