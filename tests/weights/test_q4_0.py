from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from common.weights import kernels, q4_0
from common.weights.kernels import NOT_FINITE, OFF_GRID, OK, STEP_RANGE
from tests.helpers.blocks import unpack, values_of

LEVELS = st.lists(st.integers(-8, 7), min_size=32, max_size=32)
STEPS = st.floats(2**-13, 1000, width=16)


def repack(values: q4_0.Values) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    blocks = np.zeros((len(values), q4_0.BLOCK_BYTES), np.uint8)
    status = np.full(len(values), 99, np.uint8)
    q4_0.repack(values, blocks, status)
    return blocks, status


def bf16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    return q4_0.round_to_bf16(np.asarray(values, np.float32)).reshape(-1, 32)


def group(*values: float) -> npt.NDArray[np.float32]:
    """One group: these values, then zeros."""
    return np.array([*values, *[0.0] * (32 - len(values))], np.float32).reshape(1, 32)


def mixed_groups() -> npt.NDArray[np.float32]:
    """Groups of every kind: on the grid, off it, zero, not finite, too large and too small."""
    rng = np.random.default_rng(1)
    levels = rng.integers(-8, 8, (4000, 32))
    levels[1000:2000] = rng.integers(-3, 4, (1000, 32))
    levels[2000:2500] *= rng.integers(0, 2, (500, 32))
    steps = 2.0 ** rng.uniform(-24, 18, (4000, 1))
    values = (levels * steps).astype(np.float32)
    # Errors around the tolerance itself, where the two implementations could part.
    largest = np.abs(values[2500:3500]).max(axis=1, keepdims=True)
    values[2500:3500] += (largest * rng.uniform(-0.0085, 0.0085, (1000, 32))).astype(np.float32)
    values[3500:3600] = rng.normal(0, 0.02, (100, 32))
    values[3600:3610] = 0
    values[3610:3615] = -0.0
    values[3620, 5], values[3621, 6], values[3622, 31] = np.nan, np.inf, -np.inf
    values[3630:3640] = (rng.integers(-8, 8, (10, 32)) * 1e30).astype(np.float32)
    values[3640:3650] = (rng.integers(-8, 8, (10, 32)) * 1e-40).astype(np.float32)
    return values


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_kernel_equals_reference_to_the_bit(dtype: str) -> None:
    wide = mixed_groups()
    with np.errstate(over="ignore"):
        forms: dict[str, q4_0.Values] = {
            "bf16": (wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16),
            "f16": wide.astype(np.float16),
            "f32": wide,
        }
    values = forms[dtype]
    blocks, status = repack(values)
    expected, expected_status = q4_0.repack_numpy(values)
    np.testing.assert_array_equal(status, expected_status)
    good = np.equal(status, OK)
    np.testing.assert_array_equal(blocks[good], expected[good])
    assert set(status) == {OK, OFF_GRID, NOT_FINITE, STEP_RANGE}
    assert good.sum() > 1000


@given(LEVELS, STEPS)
@settings(max_examples=400, deadline=None)
def test_levels_come_back(levels: list[int], step: float) -> None:
    """Any levels with no common factor come back; others come back divided by it."""
    expected = np.array(levels, np.int8).reshape(1, 32)
    common = int(np.gcd.reduce(np.abs(expected[0]).astype(int)))
    assume(common)
    blocks, status = repack(bf16(expected.astype(np.float32) * np.float32(step)))
    assert status[0] == OK
    found, _ = unpack(blocks)
    np.testing.assert_array_equal(found * common, expected)


@given(LEVELS, st.integers(1, 31), st.integers(-14, 3))
@settings(max_examples=200, deadline=None)
def test_steps_of_five_bits_come_back_too(levels: list[int], digits: int, power: int) -> None:
    """A level times a step of 5 bits is a bf16 exactly, so nothing is lost at all."""
    expected = np.array(levels, np.float32).reshape(1, 32) * np.float32(digits * 2.0**power)
    assume(expected.any())
    blocks, status = repack(bf16(expected))
    assert status[0] == OK
    np.testing.assert_array_equal(values_of(blocks), expected)


ERRORS = st.lists(st.floats(-(2**-7), 2**-7, width=32), min_size=32, max_size=32)


@given(LEVELS, STEPS, ERRORS, st.sampled_from([0, 0.25, 0.5, 0.75, 1]))
@settings(max_examples=200, deadline=None)
def test_accepted_values_lie_near_their_levels(
    levels: list[int], step: float, errors: list[float], share: float
) -> None:
    """Groups up to and around the limit of what the search accepts."""
    on_grid = np.array(levels, np.float32).reshape(1, 32) * np.float32(step)
    largest = np.abs(on_grid).max()
    wide = on_grid + np.array(errors, np.float32) * largest * np.float32(share)
    blocks, status = repack(wide)
    assume(status[0] == OK)
    # 2**-7 of the largest by the search, as much again by refining and rounding the step.
    error = np.abs(values_of(blocks) - wide).max()
    assert error <= 2 * np.abs(wide).max() * 2**-7


@pytest.mark.parametrize(
    ("values", "levels", "step"),
    [
        pytest.param(group(), group(), 0.0, id="all zero"),
        pytest.param(group(*[0.75] * 32), group(*[1] * 32), 0.75, id="constant"),
        pytest.param(group(*[-0.75] * 32), group(*[-1] * 32), 0.75, id="constant negative"),
        pytest.param(group(3.5, -0.5, 1), group(7, -1, 2), 0.5, id="largest is +7"),
        pytest.param(group(-4, 3.5, 0.5), group(-8, 7, 1), 0.5, id="largest is -8"),
        pytest.param(group(0.25, -0.25), group(1, -1), 0.25, id="largest is 1"),
        pytest.param(group(-4, 2, 1), group(-4, 2, 1), 1.0, id="all levels even: halved"),
    ],
)
def test_named_groups(
    values: npt.NDArray[np.float32], levels: npt.NDArray[np.float32], step: float
) -> None:
    blocks, status = repack(bf16(values))
    found, steps = unpack(blocks)
    assert status[0] == OK
    np.testing.assert_array_equal(found, levels)
    assert steps[0] == np.float16(step)


@pytest.mark.parametrize(
    ("values", "status"),
    [
        (group(8, 1), OFF_GRID),  # +8 is no level
        (group(*np.linspace(-1, 1, 32)), OFF_GRID),
        (group(1, np.nan), NOT_FINITE),
        (group(-np.inf), NOT_FINITE),
        (group(2e-7, 1e-7), STEP_RANGE),
        (group(40.5 * 2**-24), STEP_RANGE),  # off by half of 2**-24, 1 part in 81
        (group(70000.0), STEP_RANGE),
        (group(1e30), STEP_RANGE),
    ],
)
def test_bad_groups(values: npt.NDArray[np.float32], status: int) -> None:
    for source in (values, bf16(values)):
        assert repack(source)[1][0] == status
        assert q4_0.repack_numpy(source)[1][0] == status


def test_half_bits_are_numpys() -> None:
    every = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (every[1:] + every[:-1]) / np.float32(2)
    exact = np.concatenate([every, middles, np.array([65519, 65520, 65536, 1e38], np.float32)])
    up, down = np.nextafter(exact, np.float32(3e38)), np.nextafter(exact, np.float32(0))
    values = np.concatenate([exact, up, down])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)

    @numba.njit
    def convert(x, bits, back):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        for i in range(len(x)):
            bits[i] = kernels.half_bits(x[i])
            back[i] = kernels.half_value(bits[i])

    bits, back = np.empty(len(values), np.uint16), np.empty(len(values), np.float32)
    convert(values, bits, back)
    np.testing.assert_array_equal(bits, expected.view(np.uint16))
    np.testing.assert_array_equal(back, expected.astype(np.float32))


def test_blocks_are_what_the_gguf_package_reads() -> None:
    rng = np.random.default_rng(2)
    levels = rng.integers(-8, 8, (100, 32), dtype=np.int8)
    steps = rng.uniform(0, 1, 100).astype(np.float16)
    blocks = q4_0.pack(levels, steps)
    expected = levels.astype(np.float32) * steps.astype(np.float32)[:, None]
    np.testing.assert_array_equal(values_of(blocks), expected)
    again, steps_again = unpack(blocks)
    np.testing.assert_array_equal(again, levels)
    np.testing.assert_array_equal(steps_again, steps)


def test_pack_refuses_a_level_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"-8\.\.7"):
        q4_0.pack(np.full((1, 32), 8, np.int8), np.ones(1, np.float16))


def test_bf16_goes_both_ways() -> None:
    every = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    finite = every[np.isfinite(q4_0.widen(every))]
    np.testing.assert_array_equal(q4_0.round_to_bf16(q4_0.widen(finite)), finite)
    # 1 + 2**-8 lies half way between 1 and the next bf16; 1 + 3 * 2**-8 between odd and even.
    ties = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], np.float32)
    back = q4_0.widen(q4_0.round_to_bf16(ties))
    np.testing.assert_array_equal(back, np.array([1, 1 + 2**-6, 1 + 2**-7], np.float32))


def test_compiled_bf16_equals_numpy() -> None:
    rng = np.random.default_rng(3)
    blocks = q4_0.pack(
        rng.integers(-8, 8, (500, 32), dtype=np.int8), rng.uniform(0, 9, 500).astype(np.float16)
    )
    bits = np.empty((500, 32), np.uint16)
    q4_0.blocks_to_bf16(blocks, bits)
    np.testing.assert_array_equal(bits, q4_0.round_to_bf16(values_of(blocks)))


def test_compiles_where_no_cache_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Any = numba.njit

    def njit(**options: Any) -> Any:
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    assert kernels.machine_code(lambda x: x + 1)(1) == 2
