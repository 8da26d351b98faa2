"""The compiled product against torch's, and the promise that a row is the same bits in any company."""

import pytest
import torch

from dspark.models.native import compile as native_compile
from dspark.models.native.binding import Kernels
from dspark.models.native.compile import NoCompilerError, load_kernels
from dspark.models.sources import default_cache_dir

SIZES = [(1, 1), (3, 5), (7, 16), (24, 24), (50, 33), (96, 64), (131, 100)]  # rows of weights, inner size


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return Kernels(default_cache_dir())


@pytest.mark.parametrize(("rows", "inner"), SIZES)
@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 17, 64, 65, 200])
def test_linear_is_the_product_in_double_precision(kernels, rows, inner, tokens):
    generator = torch.Generator().manual_seed(rows * 1000 + inner)
    x = torch.randn(tokens, inner, generator=generator)
    weight, bias = torch.randn(rows, inner, generator=generator), torch.randn(rows, generator=generator)
    exact = x.double() @ weight.double().T
    # |error| <= inner * 2**-24 * sum of |terms|, the bound of a float32 dot product in any order
    bound = (inner + 1) * 2.0**-24 * (x.abs().double() @ weight.abs().double().T + bias.abs())
    assert ((kernels.linear(x, weight).double() - exact).abs() <= bound).all()
    assert ((kernels.linear(x, weight, bias).double() - exact - bias).abs() <= bound).all()


@pytest.mark.parametrize(("rows", "inner"), SIZES)
def test_a_row_is_the_same_bits_in_any_company(kernels, rows, inner):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(130, inner, generator=generator)
    weight = torch.randn(rows, inner, generator=generator)
    alone = torch.cat([kernels.linear(row[None], weight) for row in x])
    for tokens in (2, 3, 5, 8, 9, 15, 16, 63, 64, 65, 129, 130):
        assert torch.equal(kernels.linear(x[:tokens].contiguous(), weight), alone[:tokens])


def test_threads_change_no_bit(kernels):
    generator = torch.Generator().manual_seed(3)
    x, weight = torch.randn(9, 80, generator=generator), torch.randn(500, 80, generator=generator)
    one = kernels.linear(x, weight)
    threads = torch.get_num_threads()
    try:
        for count in (2, 3, 7):
            torch.set_num_threads(count)
            assert torch.equal(kernels.linear(x, weight), one)
    finally:
        torch.set_num_threads(threads)


def test_kernels_read_contiguous_float32_only(kernels):
    weight = torch.randn(8, 8)
    with pytest.raises(ValueError, match="contiguous CPU tensors"):
        kernels.linear(torch.randn(8, 4).T, weight)
    with pytest.raises(ValueError, match=r"float32 and int64, got torch\.float64"):
        kernels.linear(torch.randn(2, 8, dtype=torch.float64), weight)


@pytest.fixture
def unloaded():
    load_kernels.cache_clear()
    yield
    load_kernels.cache_clear()


def test_without_a_compiler_there_are_no_kernels(unloaded, monkeypatch, tmp_path):
    monkeypatch.setattr(native_compile.shutil, "which", lambda name: None)
    with pytest.raises(NoCompilerError, match="no C\\+\\+ compiler was found"):
        load_kernels(tmp_path)


def test_a_compiler_that_fails_says_why_and_leaves_nothing(unloaded, monkeypatch, tmp_path):
    monkeypatch.setattr(native_compile, "FLAGS", ("-fno-such-flag",))
    with pytest.raises(NoCompilerError, match="could not compile the kernels .*no-such-flag"):
        load_kernels(tmp_path)
    assert [path.suffix for path in (tmp_path / "native").iterdir()] in ([], [".lock"])


def test_half_a_library_is_compiled_again(unloaded, tmp_path):
    name = f"kernels-{native_compile._fingerprint(native_compile.find_compiler())}.so"
    library = tmp_path / "native" / name
    library.parent.mkdir()
    library.write_bytes(b"half")
    load_kernels(tmp_path)
    assert library.stat().st_size > 10_000


def test_a_folder_that_cannot_hold_a_library_is_no_crash(unloaded, tmp_path):
    (tmp_path / "native").write_text("a file where a folder should be")
    with pytest.raises(NoCompilerError, match="cannot be kept in .*FileExistsError"):
        load_kernels(tmp_path)


def test_a_user_without_a_home_is_no_crash(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("DSPARK_CACHE", raising=False)
    monkeypatch.setattr("pathlib.Path.home", nobody)
    with pytest.raises(NoCompilerError, match="Could not determine home directory"):
        native_compile.kernel_folder()


def _has_flag(name: str) -> bool:
    return f" {name} ".encode() in native_compile._instruction_sets() + b" "


@pytest.mark.parametrize("flags", [("-mavx2", "-mfma"), ("-march=x86-64",)], ids=["avx2", "plain"])
def test_other_instruction_sets_compute_the_same(unloaded, monkeypatch, tmp_path, flags):
    """AVX2 and plain code are other orders of the same sums."""
    if native_compile.platform.machine() != "x86_64":
        pytest.skip("these flags are of x86-64 processors")
    if "-mavx2" in flags and not _has_flag("avx2"):
        pytest.skip("this processor has no AVX2")
    generator = torch.Generator().manual_seed(5)
    x, weight = torch.randn(21, 50, generator=generator), torch.randn(37, 50, generator=generator)
    kept = tuple(flag for flag in native_compile.FLAGS if flag != "-march=native")
    monkeypatch.setattr(native_compile, "FLAGS", (*kept, *flags))
    other = Kernels(tmp_path)
    assert other.vector_width == (8 if "-mavx2" in flags else 4)
    torch.testing.assert_close(other.linear(x, weight), x @ weight.T, atol=1e-5, rtol=1e-5)
    assert torch.equal(other.linear(x[4:5].contiguous(), weight), other.linear(x, weight)[4:5])
