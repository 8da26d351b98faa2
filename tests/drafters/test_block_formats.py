"""Folders of three formats: round trips, what each one's numbers mean, and what is refused by name."""

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark.drafters.block import BlockDrafter
from dspark.drafters.formats import (
    TargetFacts,
    check_target,
    describe,
    load_drafter_folder,
    save_drafter_folder,
)
from tests.drafters.block_tools import PLAIN_HEADS, SPEC, random_backbone
from tests.engine.tools import load

FITTING = replace(SPEC, hidden_size=64, vocab_size=259, draft_vocab_size=259, num_target_layers=2)


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load(tiny_llama)


def tables_of(target):
    model = target.model
    return model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()


def saved(target, folder, spec=FITTING, layout="deepspec", **kwargs):
    """A random drafter for the target, and its folder."""
    model = random_backbone(spec, tables=tables_of(target))
    save_drafter_folder(model, folder, layout=layout, dtype=torch.float32, **kwargs)
    return model


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def block_of(model, seed=0):
    """Outputs of all heads for some features, so that two models can be compared."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(1, 6, model.spec.feature_size, generator=generator)
    ids = model.slots(torch.tensor([3]), model.spec.num_slots)
    positions = torch.arange(6, 6 + ids.shape[1])[None]
    hidden = model.block(
        ids, positions, model.context_kv(model.context(features), torch.arange(6)[None]), None
    )
    logits = model.lm_head(hidden)
    if model.markov_head is not None:
        logits = logits + model.markov_head.markov_w2(model.markov_head.along(hidden, ids))
    return logits


def assert_same(model, again):
    assert set(model.state_dict()) == set(again.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    if model.spec.sees_all:
        # not bit for bit: where a weight lies in memory changes how some libraries sum
        torch.testing.assert_close(block_of(again), block_of(model), atol=1e-5, rtol=1e-5)


DEEPSPEC_SPECS = {
    "vanilla": FITTING,
    "gated": replace(FITTING, markov_head_type="gated", target_name="org/target"),
    "rnn": replace(FITTING, markov_head_type="rnn", confidence_with_markov=False),
    "dflash": replace(FITTING, kind="dflash", **PLAIN_HEADS),
    "llama": replace(FITTING, qk_norm=False, attention_bias=True, feature_layers=(-1, 0)),
    "yarn": replace(
        FITTING,
        rope={
            "rope_type": "yarn",
            "rope_theta": 100.0,
            "factor": 2.0,
            "original_max_position_embeddings": 64,
        },
    ),
}
SPECULATORS_SPECS = {
    "reduced": replace(FITTING, draft_vocab_size=40),
    "unused_anchor": replace(FITTING, kind="dflash", samples_from_anchor=False, **PLAIN_HEADS),
    "windows": replace(FITTING, windows=(4, None), window_from_anchor=True, causal=(True, False)),
}


@pytest.mark.parametrize("with_tables", [True, False])
@pytest.mark.parametrize("name", DEEPSPEC_SPECS)
def test_deepspec_round_trip(target, tmp_path, name, with_tables):
    model = saved(target, tmp_path, DEEPSPEC_SPECS[name], with_tables=with_tables)
    stored = load_file(tmp_path / "model.safetensors")
    assert ("embed_tokens.weight" in stored) == ("lm_head.weight" in stored) == with_tables
    again = load_drafter_folder(tmp_path, target)
    assert again.spec == model.spec
    assert_same(model, again)


@pytest.mark.parametrize("name", [*DEEPSPEC_SPECS, *SPECULATORS_SPECS])
def test_speculators_round_trip(target, tmp_path, name):
    spec = {**DEEPSPEC_SPECS, **SPECULATORS_SPECS}[name]
    model = saved(target, tmp_path, spec, layout="speculators")
    again = load_drafter_folder(tmp_path, target)
    assert again.spec == replace(spec, num_target_layers=None), "the format does not say the target's depth"
    assert_same(model, again)
    stored = load_file(tmp_path / "model.safetensors")
    assert ("t2d" in stored) == spec.has_reduced_vocab
    if spec.has_reduced_vocab:
        ids = torch.arange(40) + stored["d2t"]
        assert stored["t2d"].nonzero().squeeze(1).tolist() == sorted(ids.tolist())
        assert stored["lm_head.weight"].shape == (len(stored["markov_head.markov_w2.weight"]), 64)
        assert stored["markov_head.markov_w1.weight"].shape[0] == 259, "W1 goes by the target's ids"


def as_zlab(folder, spec, **special):
    """The saved DeepSpec folder as z-lab or SpecForge would have written it."""
    config = json.loads((folder / "config.json").read_text())
    for key in [*config]:
        if key in ("mask_token_id", "target_layer_ids", "num_anchors") or key.startswith(
            ("markov", "enable")
        ):
            del config[key]
    config.pop("confidence_head_with_markov", None)
    config["architectures"] = ["DFlashDraftModel"]
    config["dflash_config"] = {
        "mask_token_id": spec.mask_token_id, "target_layer_ids": list(spec.feature_layers), **special
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    edit_tensors(folder, lambda tensors: [tensors.pop(n) for n in ("embed_tokens.weight", "lm_head.weight")])


def test_zlab_dflash_drafts_one_token_less_than_it_has_slots(target, tmp_path):
    spec = replace(FITTING, kind="dflash", **PLAIN_HEADS)
    model = saved(target, tmp_path, spec)
    as_zlab(tmp_path, spec)
    again = load_drafter_folder(tmp_path, target)
    assert again.spec == replace(spec, block_size=4, samples_from_anchor=False)
    assert again.spec.num_slots == 5
    assert_same(model, again)
    edit(tmp_path, layer_types=["sliding_attention", "full_attention"], sliding_window=9)
    sliding = load_drafter_folder(tmp_path, target).spec
    assert (sliding.windows, sliding.causal, sliding.window_from_anchor) == ((9, None), (True, False), False)
    edit(tmp_path, is_causal=False)
    assert load_drafter_folder(tmp_path, target).spec.causal == ()


@pytest.mark.parametrize("prefix", ["", "logit_head."])
def test_specforge_dspark_has_its_heads_in_dflash_config(target, tmp_path, prefix):
    model = saved(target, tmp_path, FITTING)
    heads = {
        "projector_type": "dspark", "markov_rank": 6, "markov_head_type": "vanilla",
        "enable_confidence_head": True, "confidence_head_with_markov": True,
    }  # fmt: skip
    as_zlab(tmp_path, FITTING, **heads)

    def rename(tensors):
        for name in [name for name in tensors if name.startswith(("markov", "confidence"))]:
            tensors[prefix + name] = tensors.pop(name)

    edit_tensors(tmp_path, rename)
    again = load_drafter_folder(tmp_path, target)
    assert again.spec == FITTING, "it was trained to predict from the anchor on, so 5 slots give 5 drafts"
    assert_same(model, again)


def test_one_layer_has_three_numbers(target, tmp_path):
    """The golden test of the off-by-one family: what the formats write is the output of decoder layer 0."""
    spec = replace(FITTING, kind="dflash", feature_layers=(0,), samples_from_anchor=False, **PLAIN_HEADS)
    written = {}
    for name in ("deepspec", "speculators", "zlab"):
        folder = tmp_path / name
        layout = "speculators" if name == "speculators" else "deepspec"
        each = replace(spec, samples_from_anchor=True) if layout == "deepspec" else spec
        saved(target, folder, each, layout=layout)
        if name == "zlab":
            as_zlab(folder, each)
        config = json.loads((folder / "config.json").read_text())
        written[name] = (
            config.get("aux_hidden_state_layer_ids")
            or config.get("target_layer_ids")
            or (config["dflash_config"]["target_layer_ids"])
        )
        drafter = BlockDrafter(load_drafter_folder(folder, target))
        assert drafter.feature_layers == (0,)
    assert written == {"deepspec": [0], "speculators": [1], "zlab": [0]}
    edit(tmp_path / "speculators", aux_hidden_state_layer_ids=[0, 2])
    assert describe(tmp_path / "speculators").spec.feature_layers == (-1, 1)


def test_rope_of_either_generation_and_shards(target, tmp_path):
    model = saved(target, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config["rope_theta"], config["rope_scaling"] = 100.0, None
    path.write_text(json.dumps(config))
    assert load_drafter_folder(tmp_path, target).spec == model.spec
    config["rope_scaling"] = {"type": "linear", "factor": 4.0}
    path.write_text(json.dumps(config))
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}
    assert load_drafter_folder(tmp_path, target).spec.rope == rope
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    weight_map = {}
    for number, names in enumerate((sorted(tensors)[:9], sorted(tensors)[9:]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names}, tmp_path / file)
        weight_map.update(dict.fromkeys(names, file))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for name, tensor in load_drafter_folder(tmp_path, target).state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match="lacks model-00002-of-00002.safetensors; complete the folder"):
        load_drafter_folder(tmp_path, target)


def test_the_targets_tables_are_shared_and_a_quantized_copy_is_kept(target, tmp_path, caplog):
    saved(target, tmp_path)
    embedding, head = tables_of(target)
    again = load_drafter_folder(tmp_path, target)
    assert again.embed_tokens.weight.data_ptr() == embedding.data_ptr()
    assert again.lm_head.weight.data_ptr() == head.data_ptr()
    save_drafter_folder(again, tmp_path, layout="deepspec")  # bfloat16: equal to the rounded table
    assert load_drafter_folder(tmp_path, target).lm_head.weight.data_ptr() == head.data_ptr()
    assert not caplog.records

    def quantize(tensors):
        tensors["embed_tokens.weight"] = (tensors["embed_tokens.weight"].float() * 8).round() / 8

    edit_tensors(tmp_path, quantize)
    own = load_drafter_folder(tmp_path, target).embed_tokens.weight
    assert torch.equal(own, (embedding.bfloat16().float() * 8).round() / 8)
    assert "it is kept" in caplog.text


REFUSED_TENSORS = {
    "lacks tensors fc.weight, norm.weight; its weights": lambda t: [t.pop("fc.weight"), t.pop("norm.weight")],
    "holds unknown tensors layers.2.conv; its": lambda t: t.update({"layers.2.conv": torch.ones(1)}),
    "tensor fc.weight must have the shape [64, 128]": lambda t: t.update({"fc.weight": torch.ones(64, 64)}),
    "tensor lm_head.weight must be finite, got NaN": lambda t: t["lm_head.weight"].fill_(torch.nan),
    "tensor fc.weight must be finite, got NaN": lambda t: t["fc.weight"][3].fill_(torch.inf),
    "the drafter's embed_tokens.weight must be the target's, got one that differs by 1": lambda t: t[
        "embed_tokens.weight"
    ].copy_(t["embed_tokens.weight"].flip(0)),
}


@pytest.mark.parametrize("message", REFUSED_TENSORS)
def test_tensors_that_do_not_go_together_are_refused_by_name(target, tmp_path, message):
    saved(target, tmp_path)
    edit_tensors(tmp_path, REFUSED_TENSORS[message])
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_drafter_folder(tmp_path, target)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "change"),
    [
        ("d2t must map draft ids to different ids", lambda t: t["d2t"].add_(300)),
        ("39 of 40 different", lambda t: t["d2t"][1:2].copy_(t["d2t"][:1] - 1)),
        ("t2d must mark the tokens", lambda t: t["t2d"].fill_(True)),
        ("lacks tensors d2t", lambda t: t.pop("d2t")),
        ("lacks tensors lm_head.weight", lambda t: t.pop("lm_head.weight")),
    ],
)
def test_maps_that_are_none_are_refused(target, tmp_path, message, change):
    saved(target, tmp_path, SPECULATORS_SPECS["reduced"], layout="speculators")
    edit_tensors(tmp_path, change)
    with pytest.raises(ValueError, match=message):
        load_drafter_folder(tmp_path, target)


REFUSED_CONFIGS = {
    "describes no drafter that is implemented: architectures: LlamaForCausalLM": {
        "architectures": ["LlamaForCausalLM"]
    },
    "architectures: Gemma4DSparkModel": {"architectures": ["Gemma4DSparkModel"]},
    "speculators_model_type is 'mtp'": {"speculators_model_type": "mtp"},
    "lacks 'mask_token_id'": {"mask_token_id": None},
    "lacks 'markov_head_type'": {"markov_head_type": None},
    "mask_token_id must be in [0, 258]": {"mask_token_id": 259},
    "feature_layers must be different ones": {"target_layer_ids": [0, 2]},
    "needs a Markov head": {"markov_rank": 0},
    "hidden_act must be silu": {"hidden_act": "gelu"},
    "rope_type must be one of": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1.0}},
    "got sliding_attention": {"layer_types": ["sliding_attention"] * 2, "sliding_window": 4},
    "DFlash drafters with conv_kernel_size are not": {"dflash_config": {"conv_kernel_size": 2}},
}


@pytest.mark.parametrize("message", REFUSED_CONFIGS)
def test_configurations_are_refused_before_weights_are_read(target, tmp_path, message):
    saved(target, tmp_path)
    edit(tmp_path, **REFUSED_CONFIGS[message])
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        describe(tmp_path)
    assert "\n" not in str(caught.value)


def test_pickles_and_empty_folders_are_refused(tmp_path, target):
    with pytest.raises(ValueError, match=r"has no config\.json"):
        describe(tmp_path)
    saved(target, tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"only pytorch_model\.bin, which can run code"):
        describe(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(ValueError, match="cannot read"):
        describe(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot read"):
        describe(tmp_path)


@pytest.mark.parametrize(
    ("message", "facts"),
    [
        ("its hidden size is 32, the target's 64", {"hidden_size": 64}),
        ("its vocabulary is 61, the target's 62", {"vocab_size": 62}),
        ("its number of layers is 3, the target's 4", {"num_layers": 4}),
    ],
)
def test_another_target_is_refused_by_its_sizes(message, facts):
    fitting = {"hidden_size": 32, "vocab_size": 61, "num_layers": 3}
    check_target(SPEC, TargetFacts(**fitting))
    with pytest.raises(ValueError, match=message):
        check_target(SPEC, TargetFacts(**{**fitting, **facts}))
    unsaid = replace(SPEC, num_target_layers=None, feature_layers=(0, 4))
    with pytest.raises(ValueError, match="its last feature layer is 4, the target's 2"):
        check_target(unsaid, TargetFacts(**fitting))


def test_layouts_refuse_what_they_cannot_say(target, tmp_path):
    for name in SPECULATORS_SPECS:
        with pytest.raises(ValueError, match="DeepSpec's format has no place for"):
            saved(target, tmp_path, SPECULATORS_SPECS[name])
    with pytest.raises(ValueError, match="windows counted from the anchor"):
        saved(target, tmp_path, replace(FITTING, windows=(4, None)), layout="speculators")


def test_a_target_that_scales_its_embeddings_is_refused(tiny_gemma2, tmp_path, target):
    saved(target, tmp_path)
    with pytest.raises(ValueError, match="which has final_logit_softcapping, embed_scale"):
        load_drafter_folder(tmp_path, load(tiny_gemma2, numerics="fast"))


def test_a_map_of_a_whole_vocabulary_may_be_stored_if_it_is_none(target, tmp_path):
    model = saved(target, tmp_path)
    edit_tensors(tmp_path, lambda t: t.update(d2t=torch.zeros(259, dtype=torch.int64)))
    assert_same(model, load_drafter_folder(tmp_path, target))
    edit_tensors(tmp_path, lambda t: t.update(d2t=torch.ones(259, dtype=torch.int64)))
    with pytest.raises(ValueError, match="d2t maps 259 draft ids, the whole vocabulary, and must be"):
        load_drafter_folder(tmp_path, target)


def test_a_folder_with_other_weights_is_not_written_to(target, tmp_path):
    saved(target, tmp_path)
    saved(target, tmp_path)  # over itself
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match="already holds model.safetensors.index.json, which would be read"):
        saved(target, tmp_path)
    with pytest.raises(ValueError, match="must hold a weight_map, got none"):
        load_drafter_folder(tmp_path, target)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ValueError, match="cannot read .*index.json"):
        load_drafter_folder(tmp_path, target)


def test_dflash_with_heads_is_no_spec():
    with pytest.raises(ValueError, match="a dflash drafter has no heads, got markov_rank 6"):
        replace(SPEC, kind="dflash")
