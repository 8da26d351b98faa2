"""EAGLE-3 folders of three layouts: what is read, what is written, and what is refused by name."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark.drafters.eagle3_model import Eagle3Model
from dspark.drafters.eagle3_unroll import unroll
from dspark.drafters.formats import describe, load_drafter_folder, save_drafter_folder
from tests.drafters.eagle3_tools import NORMS, random_head, tiny_spec
from tests.engine.tools import load

WIDTH, VOCAB = 64, 259  # of the tiny target, which has two layers
DRAFTED = torch.arange(3, 43) * 6
"""Forty tokens that a reduced vocabulary has: draft id i is the target's 18 + 6 i, so offset 18 + 5 i."""


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load(tiny_llama)


def head_of(target, *, reduced=False, **changes):
    """A random head for the target, with the target's tables."""
    spec = tiny_spec(
        hidden_size=WIDTH,
        vocab_size=VOCAB,
        draft_vocab_size=len(DRAFTED) if reduced else VOCAB,
        num_target_layers=2,
        feature_layers=changes.pop("feature_layers", (1, 0)),
        target_name="some/target",
        **changes,
    )
    model = random_head(spec, d2t=DRAFTED - torch.arange(len(DRAFTED)))
    tables = target.model.get_input_embeddings().weight, target.model.get_output_embeddings().weight
    model.share(tables[0], None if reduced else tables[1])
    return model


def assert_same(ours, theirs):
    assert ours.spec == theirs.spec
    wanted, got = ours.state_dict(), theirs.state_dict()
    assert set(wanted) == set(got)
    for name, tensor in wanted.items():
        assert torch.equal(tensor, got[name]), name
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1, 9, WIDTH * len(ours.spec.feature_layers), generator=generator)
    tokens = torch.randint(VOCAB, (1, 9), generator=generator)
    anchors = torch.tensor([[2, 6]])
    assert torch.equal(
        unroll(ours, features, tokens, anchors, 3), unroll(theirs, features, tokens, anchors, 3)
    )


@pytest.mark.parametrize("with_tables", [True, False])
@pytest.mark.parametrize("qwen", [True, False])
def test_deepspec_round_trip(target, tmp_path, qwen, with_tables):
    model = head_of(target, qk_norm=qwen, attention_bias=qwen)
    save_drafter_folder(model, tmp_path, layout="deepspec", dtype=torch.float32, with_tables=with_tables)
    loaded = load_drafter_folder(tmp_path, target)
    assert_same(model, loaded)
    assert loaded.embed_tokens.weight.data_ptr() == target.model.get_input_embeddings().weight.data_ptr()
    assert loaded.lm_head.weight.data_ptr() == target.model.get_output_embeddings().weight.data_ptr()
    stored = load_file(tmp_path / "model.safetensors")
    assert ("embed_tokens.weight" in stored) == with_tables
    # d = 64, two feature layers, four query and two key heads of 12
    assert list(stored["fc.weight"].shape) == [64, 128]
    assert list(stored["layers.0.self_attn.q_proj.weight"].shape) == [48, 128]
    assert list(stored["layers.0.self_attn.k_proj.weight"].shape) == [24, 128]
    assert list(stored["layers.0.hidden_norm.weight"].shape) == [64]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["Qwen3Eagle3Model"]
    assert (config["target_layer_ids"], config["ttt_length"], config["num_target_layers"]) == ([1, 0], 4, 2)


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("reduced", [True, False])
def test_speculators_round_trip(target, tmp_path, norms, reduced):
    model = head_of(target, reduced=reduced, norms=NORMS[norms])
    save_drafter_folder(model, tmp_path, layout="speculators", dtype=torch.float32)
    facts = {"num_target_layers": 2}  # which the layout does not say
    assert describe(tmp_path).spec.num_target_layers is None
    assert describe(tmp_path, **facts).spec == model.spec
    assert_same(model, load_drafter_folder(tmp_path, target))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 1], "one more than the decoder layer's number"
    stored = load_file(tmp_path / "model.safetensors")
    assert ("d2t" in stored) == reduced
    if reduced:
        assert stored["d2t"][:3].tolist() == [18, 23, 28]
        assert stored["t2d"].nonzero().squeeze(1).tolist() == DRAFTED.tolist()


def classic_folder(model, folder, **config):
    """The layout of EAGLE's own code, as public heads have it."""
    spec = model.spec
    written = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "vocab_size": VOCAB,
        "draft_vocab_size": spec.draft_vocab_size,
        "max_position_embeddings": 256,
        **config,
    }
    tensors = {name.replace("layers.0.", "midlayer."): t.clone() for name, t in model.state_dict().items()}
    del tensors["embed_tokens.weight"]
    if model.d2t is not None:
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, DRAFTED, True)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(written))
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_the_authors_own_layout_is_read(target, tmp_path):
    model = head_of(target, reduced=True, block_size=7)
    ids = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 0], "use_aux_hidden_state": True}}
    loaded = load_drafter_folder(classic_folder(model, tmp_path, **ids), target)
    assert loaded.spec.feature_layers == (1, 0), "outputs of decoder layers, as they are written"
    names = {"target_name": None}
    assert {**_fields(loaded.spec), **names} == {**_fields(model.spec), **names}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name


def _fields(spec):
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


def test_a_trained_output_head_is_the_heads_own(target, tmp_path):
    model = head_of(target)
    trained = torch.randn(VOCAB, WIDTH, generator=torch.Generator().manual_seed(5))
    model.share(model.embed_tokens.weight, trained)
    save_drafter_folder(model, tmp_path, layout="speculators", dtype=torch.float32, with_tables=False)
    assert torch.equal(load_drafter_folder(tmp_path, target).lm_head.weight, trained)


def test_layers_that_are_not_written_are_counted_from_the_target(target, tmp_path):
    """Of 36 layers: EAGLE taps the inputs of 2, 18 and 33, the outputs of 1, 17 and 32."""
    model = head_of(target, reduced=True, feature_layers=(0, 1, -1))
    classic = classic_folder(model, tmp_path / "classic")
    assert describe(classic, num_target_layers=36).spec.feature_layers == (1, 17, 32)
    speculators = save_drafter_folder(model, tmp_path / "speculators", layout="speculators")
    config = json.loads((speculators / "config.json").read_text())
    config["eagle_aux_hidden_state_layer_ids"] = None
    (speculators / "config.json").write_text(json.dumps(config))
    assert describe(speculators, num_target_layers=36).spec.feature_layers == (1, 17, 32)
    for folder in (classic, speculators):
        spec = describe(folder).spec  # enough for checks that do not ask for layers
        assert spec.feature_layers == ()
        with pytest.raises(ValueError, match="needs feature layers.*num_target_layers"):
            Eagle3Model(spec)


def test_stored_per_layer_norms_have_either_name(target, tmp_path):
    model = head_of(target, norms=NORMS["each_feature"])
    save_drafter_folder(model, tmp_path, layout="speculators", dtype=torch.float32)
    stored = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("fc_norm.", "fc_norms."): tensor for name, tensor in stored.items()}
    assert set(renamed) != set(stored)
    save_file(renamed, tmp_path / "model.safetensors")
    assert_same(model, load_drafter_folder(tmp_path, target))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mlp_bias": True}, "mlp_bias must be False, other variants are not implemented"),
        ({"bias": True}, "bias must be False"),
        ({"target_hidden_size": 128}, "target_hidden_size must be 64.*got 128"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state must be True"),
        ({"hidden_act": "gelu"}, "hidden_act must be silu"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type must be one of"),
        ({"num_hidden_layers": 2}, "must have 1 layer with full attention.*got 2 layers"),
        ({"hidden_size": 32}, "does not fit the target: its hidden size is 32, the target's 64"),
        ({"vocab_size": 300}, "does not fit the target: its vocabulary is 300, the target's 259"),
    ],
)
def test_variants_and_other_targets_are_refused_by_name(target, tmp_path, change, message):
    ids = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 0]}}
    folder = classic_folder(head_of(target, reduced=True), tmp_path, **{**ids, **change})
    with pytest.raises(ValueError, match=message) as error:
        load_drafter_folder(folder, target)
    assert "\n" not in str(error.value)


def test_weights_that_lack_a_tensor_or_a_number_are_refused(target, tmp_path):
    model = head_of(target, reduced=True)
    save_drafter_folder(model, tmp_path, layout="speculators", dtype=torch.float32)
    stored = load_file(tmp_path / "model.safetensors")
    fc = stored.pop("fc.weight")
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"lacks tensors fc\.weight"):
        load_drafter_folder(tmp_path, target)
    fc[0, 0] = torch.nan
    save_file({**stored, "fc.weight": fc}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"tensor fc\.weight must be finite, got NaN"):
        load_drafter_folder(tmp_path, target)


def test_what_deepspecs_layout_cannot_say_goes_to_the_other(target, tmp_path):
    for model, what in (
        (head_of(target, reduced=True), "a reduced draft vocabulary"),
        (head_of(target, norms=NORMS["before_fc"]), "other norms than EAGLE-3's own"),
    ):
        with pytest.raises(ValueError, match=f"no place for {what}; save in the speculators layout"):
            save_drafter_folder(model, tmp_path, layout="deepspec")
