"""What transformers assumes where config.json is silent: the figures that memory depends on, by model type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

TRANSFORMERS = "5.24"
"""The version this table was read from; a test holds it against the installed one."""


@dataclass(frozen=True, slots=True)
class ConfigDefaults:
    """Defaults of one model type; None where the config has none or derives it from another figure."""

    use: str
    """`causal`: for AutoModelForCausalLM; `vision`: for AutoModelForImageTextToText only; `nested`: part of another."""
    hidden_size: int | None
    intermediate_size: int | None
    layers: int | None
    heads: int | None
    key_value_heads: int | None
    head_dim: int | None
    vocabulary: int | None
    context_length: int | None
    sliding_window: int | None
    tied: bool


@cache
def config_defaults(model_type: str) -> ConfigDefaults | None:
    """The defaults of a model type; None for one that transformers does not have as a language model."""
    start = _TABLE.find(f"\n{model_type} ")
    if start < 0 or not model_type:
        return None
    _, use, *words, tied = _TABLE[start + 1 : _TABLE.index("\n", start + 1)].split()
    hidden, intermediate, layers, heads, key_value_heads, head_dim, vocabulary, context, window = map(_figure, words)
    return ConfigDefaults(
        use,
        hidden,
        intermediate,
        layers,
        heads,
        key_value_heads,
        head_dim,
        vocabulary,
        context,
        window,
        tied == "tied",
    )


def model_types(use: str) -> frozenset[str]:
    """The model types with this use."""
    return frozenset(words[0] for line in _TABLE.splitlines() if (words := line.split()) and words[1] == use)


def _figure(word: str) -> int | None:
    return None if word == "-" else int(word)


# type, use, hidden, intermediate, layers, heads, key-value heads, head dim, vocabulary, context, window, tied
_TABLE = """
afmoe causal 2048 6144 32 16 - 128 200192 16384 1024 -
apertus causal 4096 14336 32 32 - - 131072 65536 - -
apertus1p5 vision 4096 14336 32 32 - - 266752 65536 - -
apertus1p5_text causal 4096 14336 32 32 - - 266752 65536 - -
arcee causal 2560 18432 32 32 - - 32000 4096 - -
aria vision 4096 4096 32 32 - - 32000 2048 - -
aria_text causal 4096 4096 32 32 - - 32000 2048 - -
axk1 causal 7168 18432 61 64 64 64 163840 32768 - -
axk2 causal 2048 5120 48 32 32 32 163840 131072 - -
aya_vision vision 8192 22528 40 64 - - 256000 8192 4096 tied
bailing_hybrid causal 2560 6144 42 32 32 64 157184 262144 - -
bamba causal 4096 14336 32 32 8 - 128000 262144 - -
bart causal 1024 4096 12 16 - - 50265 1024 - tied
beam causal 5120 20480 52 48 8 128 151936 8192 512 -
bert causal 768 3072 12 12 - - 30522 512 - tied
bert-generation causal 1024 4096 24 16 - - 50358 512 - tied
big_bird causal 768 3072 12 12 - - 50358 4096 - tied
bigbird_pegasus causal 1024 4096 16 16 - - 96103 4096 - tied
biogpt causal 1024 4096 24 16 - - 42384 1024 - tied
bitnet causal 2560 6912 30 20 5 - 128256 2048 - -
blenderbot causal 2560 10240 24 32 - - 8008 128 - tied
blenderbot-small causal 512 2048 8 16 - - 50265 512 - tied
blip vision 768 3072 12 8 - - 30524 512 - tied
blip-2 vision 768 3072 12 12 - - 50272 2048 - -
blip_text_model nested 768 3072 12 8 - - 30524 512 - tied
bloom causal 64 - 2 8 - - 250880 - - tied
blt causal - - - - - - 260 4096 - -
camembert causal 768 3072 12 12 - - 30522 512 - tied
chameleon vision 4096 11008 32 32 32 - 65536 4096 - -
codegen causal 4096 - 28 16 - - 50400 2048 - -
cohere causal 8192 22528 40 64 - - 256000 8192 - tied
cohere2 causal 8192 22528 40 64 - - 256000 8192 4096 tied
cohere2_moe causal 8192 22528 40 64 - 128 256000 8192 4096 tied
cohere2_vision vision 8192 22528 40 64 - - 256000 8192 4096 tied
cohere_compass vision 8192 22528 40 64 - - 256000 8192 4096 -
cohere_compass_text causal 8192 22528 40 64 - - 256000 8192 4096 tied
cosmos3_edge vision 2048 9216 28 16 8 128 131072 131072 - -
cosmos3_edge_text nested 2048 9216 28 16 8 128 131072 131072 - -
cosmos3_omni vision 4096 22016 32 32 32 128 151936 128000 - -
cpmant causal 4096 - 48 32 - - 30720 - - tied
ctrl causal 1280 - 48 16 - - 246534 256 - tied
cwm causal 6144 21504 64 48 8 128 128256 131072 8192 -
data2vec-text causal 768 3072 12 12 - - 30522 512 - tied
dbrx causal 2048 - 24 16 1 - 32000 2048 - -
deepseek_ocr2 vision 4096 11008 32 32 - - 102400 2048 - -
deepseek_ocr2_text nested 4096 11008 32 32 - - 102400 2048 - -
deepseek_v2 causal 4096 11008 32 32 - 64 102400 2048 - -
deepseek_v3 causal 7168 18432 61 128 128 64 129280 4096 - -
deepseek_v32 causal 7168 18432 61 128 128 64 129280 163840 - -
deepseek_v4 causal 4096 2048 43 64 1 512 129280 1048576 128 -
deepseek_vl vision 4096 11008 32 32 - - 32000 2048 - tied
deepseek_vl_hybrid vision 4096 11008 32 32 - - 32000 2048 - tied
diffllama causal 2048 8192 16 32 - - 32000 2048 - -
diffusion_gemma vision 2304 9216 30 8 4 256 262144 131072 512 tied
diffusion_gemma_text nested 2304 9216 30 8 4 256 262144 131072 512 tied
doge causal 1024 2048 32 8 - - 32768 2048 - -
dory causal 2560 7168 36 16 4 256 131072 8192 1024 -
dots1 causal 4608 10944 62 32 32 - 152064 2048 4096 -
dots3_note causal 5120 13824 46 128 128 256 152064 524288 512 -
dots3_note_text causal 5120 13824 46 128 128 256 152064 524288 512 -
electra causal 256 1024 12 4 - - 30522 512 - tied
emu3 causal 4096 14336 32 32 8 - 184622 9216 - -
emu3_text_model nested 4096 14336 32 32 8 - 184622 9216 - -
ernie causal 768 3072 12 12 - - 30522 512 - tied
ernie4_5 causal 1024 3072 18 16 2 128 103424 131072 - tied
ernie4_5_moe causal 2560 12288 28 20 4 - 103424 131072 - tied
ernie4_5_vl_moe vision 2560 12288 28 20 4 - 103424 131072 - tied
ernie4_5_vl_moe_text nested 2560 12288 28 20 4 - 103424 131072 - tied
evolla vision 4096 14336 32 32 8 - 128256 8192 - -
exaone causal 4096 14336 32 32 8 - 102400 4096 - -
exaone4 causal 4096 16384 32 32 32 - 102400 2048 4096 -
exaone4_5 vision 4096 16384 32 32 32 - 102400 2048 4096 -
exaone_moe causal 4096 16384 32 32 32 - 102400 2048 4096 -
falcon causal 4544 - 32 71 - - 65024 2048 - tied
falcon_h1 causal 4096 14336 32 32 8 - 128000 8192 - -
falcon_mamba causal 768 1536 32 - - - 50280 - - tied
fast_vlm vision 3584 18944 28 28 - - 152128 32768 - -
flex_olmo causal 4096 11008 32 32 - - 100352 4096 - -
flint causal 2048 6144 49 32 4 128 150144 262144 513 -
florence2 vision 1024 4096 12 16 - - 50265 1024 - tied
fuyu causal 4096 16384 36 64 - - 262144 16384 - -
gemma causal 3072 24576 28 16 16 256 256000 8192 - tied
gemma2 causal 2304 9216 26 8 4 256 256000 8192 4096 tied
gemma3 causal 2304 9216 26 8 4 256 262208 131072 4096 tied
gemma3_text causal 2304 9216 26 8 4 256 262208 131072 4096 tied
gemma3n causal 2048 - 35 8 2 256 262400 32768 512 tied
gemma3n_text causal 2048 - 35 8 2 256 262400 32768 512 tied
gemma4 causal 2304 9216 30 8 4 256 262144 131072 512 tied
gemma4_text causal 2304 9216 30 8 4 256 262144 131072 512 tied
gemma4_unified causal 2304 9216 30 8 4 256 262144 262144 1024 tied
gemma4_unified_assistant causal 2304 9216 30 8 4 256 262144 262144 1024 tied
gemma4_unified_text causal 2304 9216 30 8 4 256 262144 262144 1024 tied
git causal 768 3072 6 12 - - 30522 1024 - -
glm causal 4096 13696 40 32 2 128 151552 131072 - -
glm4 causal 4096 13696 40 32 2 128 151552 131072 - -
glm46v vision 4096 13696 40 32 2 - 151552 32768 - -
glm4_moe causal 4096 10944 46 96 8 - 151552 131072 - -
glm4_moe_lite causal 2048 10240 47 20 20 64 154880 202752 - -
glm4v vision 4096 13696 40 32 2 - 151552 32768 - -
glm4v_moe vision 4096 10944 46 96 8 - 151424 65536 - -
glm4v_moe_text nested 4096 10944 46 96 8 - 151424 65536 - -
glm4v_text nested 4096 13696 40 32 2 - 151552 32768 - -
glm5_next vision 4096 12288 45 64 64 0 154880 1048576 - -
glm5_next_text nested 4096 12288 45 64 64 0 154880 1048576 - -
glm_moe_dsa causal 6144 12288 78 64 64 64 154880 202752 - -
glm_ocr vision 1024 4096 16 16 8 - 59392 131072 - -
glm_ocr_text nested 1024 4096 16 16 8 - 59392 131072 - -
glmga vision 4096 13696 40 32 2 - 151552 32768 - -
got_ocr2 causal 1024 2816 24 16 - - 151860 32768 - tied
gpt-sw3 causal 768 - 12 12 - - 50257 1024 - tied
gpt2 causal 768 - 12 12 - - 50257 1024 - tied
gpt_bigcode causal 768 - 12 12 1 - 50257 1024 - tied
gpt_neo causal 2048 - 24 16 - - 50257 2048 - tied
gpt_neox causal 6144 24576 44 64 - - 50432 2048 - -
gpt_neox_japanese causal 2560 - 32 32 - - 32000 2048 - tied
gpt_oss causal 2880 2880 36 64 8 64 201088 131072 128 -
gptj causal 4096 - 28 16 - - 50400 2048 - -
granite causal 4096 11008 32 32 - - 32000 2048 - -
granite4_vision vision 4096 11008 32 32 - - 32000 2048 - -
granite4_vision_text nested 4096 11008 32 32 - - 32000 2048 - -
granite_docling vision 1024 2048 28 16 4 - 133800 32768 - tied
granite_docling_text nested 1024 2048 28 16 4 - 133800 32768 - tied
granite_swa causal 2560 8192 24 20 4 - 100352 8192 128 tied
granitemoe causal 4096 11008 32 32 - - 32000 2048 - -
granitemoe_swa causal 4096 11008 32 32 - - 32000 2048 128 -
granitemoehybrid causal 4096 11008 32 32 - - 32000 2048 - -
granitemoeshared causal 4096 11008 32 32 - - 32000 2048 - -
helium causal 2560 7040 24 20 20 128 48000 4096 - -
hrm_text causal 1536 4096 128 12 - 128 151808 2048 - -
hunyuan_v1_dense causal 4096 11008 32 32 - - 290943 2048 - -
hunyuan_v1_moe causal 4096 11008 32 32 - - 290943 2048 - -
hunyuan_vl vision 4096 11008 32 32 - - 290943 2048 - tied
hunyuan_vl_text nested 4096 11008 32 32 - - 290943 2048 - tied
hy_v3 causal 4096 13312 80 64 8 128 120832 131072 - -
hy_v4 causal 2816 6912 34 32 - 64 120832 262144 - -
hy_v4_vl vision 6144 18432 78 64 - 64 120832 262144 - -
hy_v4_vl_text nested 6144 18432 78 64 - 64 120832 262144 - -
hyperclovax causal 4096 11008 32 32 - - 32000 2048 - -
hyperclovax_vision_v2 vision 4096 11008 32 32 - - 32000 2048 - tied
idefics vision 4096 11008 32 32 - - 32000 2048 - -
idefics2 vision 4096 14336 32 32 8 - 32000 32768 4096 -
idefics3 vision 4096 11008 32 32 - - 32000 2048 - -
inkling2 vision 4608 2304 48 48 8 128 201024 1048576 1024 -
inkling2_loop vision 2304 1152 24 24 8 128 201024 1048576 1024 -
inkling2_loop_text causal 2304 1152 24 24 8 128 201024 1048576 1024 -
inkling2_text causal 4608 2304 48 48 8 128 201024 1048576 1024 -
inkling_mm_model vision 6144 24576 66 64 8 128 201024 131072 512 -
inkling_text causal 6144 24576 66 64 8 128 201024 131072 512 -
instructblip vision 768 3072 12 12 - - 50272 2048 - -
instructblipvideo vision 768 3072 12 12 - - 50272 2048 - -
internlm3 causal 4096 10240 48 32 2 128 128512 32768 - -
internvl vision 4096 22016 32 32 32 - 151936 32768 - tied
iquestcoder causal 5120 27648 80 40 8 128 76800 131072 - -
jais2 causal 3328 26624 32 26 - - 150272 8192 - -
jamba causal 4096 14336 32 32 8 - 65536 262144 - -
janus vision 4096 11008 32 32 - - 32000 2048 - tied
jetmoe causal 2048 5632 12 32 16 128 32000 4096 - tied
kimi_k25 vision 7168 18432 61 128 128 64 129280 4096 - tied
kimi_linear causal 2304 9216 27 32 32 64 163840 1048576 - -
kolibri1 causal 2560 - 50 48 4 128 128000 262144 513 -
kosmos-2 vision 2048 8192 24 32 - - 65037 2048 - tied
kosmos-2.5 vision 1536 6144 24 16 - - 108481 4096 - tied
kosmos_2_5_text_model nested 1536 6144 24 16 - - 108481 4096 - tied
kosmos_2_text_model nested 2048 8192 24 32 - - 65037 2048 - tied
laguna causal 2048 8192 40 48 8 128 100352 131072 512 -
lara_mini causal 1024 - 34 16 4 128 151936 131072 512 tied
lfm2 causal 2560 12288 32 32 8 - 65536 128000 - tied
lfm2_moe causal 2048 7168 32 32 8 - 65536 128000 - tied
lfm2_vl vision 2560 12288 32 32 8 - 65536 128000 - tied
lfm3 causal 2048 7680 24 16 4 128 128000 128000 256 tied
lfm3_vl vision 2048 7680 24 16 4 128 128000 128000 256 tied
lighton_ocr vision 1024 3072 28 16 - 128 151936 40960 - tied
llama causal 4096 11008 32 32 - - 32000 2048 - -
llama4 causal 5120 8192 48 40 8 128 202048 131072 - -
llama4_text causal 5120 8192 48 40 8 128 202048 131072 - -
llava vision 4096 11008 32 32 - - 32000 2048 - -
llava_next vision 4096 11008 32 32 - - 32000 2048 - -
llava_next_video vision 4096 11008 32 32 - - 32000 2048 - -
llava_onevision vision 4096 22016 32 32 32 - 151936 32768 - -
longcat_flash causal 6144 12288 56 64 - 64 131072 131072 - -
mamba causal 768 1536 32 - - - 50280 - - tied
mamba2 causal 4096 - 64 128 - 64 32768 - - -
marian causal 1024 4096 12 16 - - 58101 1024 - tied
mbart causal 1024 4096 12 16 - - 50265 1024 - tied
megatron-bert causal 1024 4096 24 16 - - 29056 512 - tied
mellum causal 2304 7168 28 32 4 128 98304 131072 1024 -
mimo_v2_flash causal 4096 16384 48 64 4 192 152576 131072 129 -
minicpm3 causal 2560 6400 62 40 40 32 73448 32768 - tied
minicpm_ocr vision 4096 12288 32 16 4 256 248320 32768 - tied
minicpmv4_6 vision 4096 12288 32 16 4 256 248320 32768 - -
minicpmv4_7 vision 4096 12288 32 16 4 256 248320 32768 - -
minimax causal 4096 14336 32 32 8 - 32000 131072 - -
minimax_m2 causal 3072 1536 62 48 8 128 200064 196608 - -
minimax_m3_vl vision 6144 3072 60 64 4 128 200064 524288 - -
minimax_m3_vl_text causal 6144 3072 60 64 4 128 200064 524288 - -
ministral causal 4096 14336 32 32 8 - 32000 131072 4096 -
ministral3 causal 4096 14336 34 32 8 128 131072 262144 - -
mistral causal 4096 14336 32 32 8 - 32000 131072 4096 -
mistral3 vision 5120 32768 40 32 8 - 131072 131072 - tied
mistral4 vision 4096 12288 36 32 32 128 131072 1048576 - -
mistral_large4 vision 6144 24576 72 64 64 64 204800 1048576 - -
mistral_large4_text nested 6144 24576 72 64 64 64 204800 1048576 - -
mixtral causal 4096 14336 32 32 8 - 32000 131072 - -
mllama causal 4096 14336 40 32 8 - 128256 131072 - -
mllama_text_model nested 4096 14336 40 32 8 - 128256 131072 - -
modernbert-decoder causal 768 1152 22 12 - - 50368 8192 64 tied
molmo2 vision 4096 12288 36 32 8 128 151936 36864 - -
molmo2_text nested 4096 12288 36 32 8 128 151936 36864 - -
moshi causal 4096 22528 32 32 - - 32000 3000 3000 -
moss_transcribe_diarize causal 1024 3072 28 16 - 128 151936 131072 - tied
mpt causal 2048 - 24 16 - - 50368 2048 - tied
muse_glimmer vision 6656 19968 52 32 2 128 202048 131072 2048 -
muse_glimmer_text nested 6656 19968 52 32 2 128 202048 131072 2048 -
muse_spark vision 8192 16384 62 128 16 64 202048 1048576 2048 -
muse_spark_text nested 8192 16384 62 128 16 64 202048 1048576 2048 -
musicgen causal 1024 4096 24 16 - - 2048 2048 - -
musicgen_decoder nested 1024 4096 24 16 - - 2048 2048 - -
musicgen_melody causal 1024 4096 24 16 - - 2048 2048 - -
musicgen_melody_decoder nested 1024 4096 24 16 - - 2048 2048 - -
mvp causal 1024 4096 12 16 - - 50267 1024 - tied
nanochat causal 768 8192 12 6 - - 50304 2048 - -
nemotron causal 6144 24576 32 48 - - 256000 4096 - -
nemotron_h causal 4096 21504 4 32 8 128 131072 4096 - -
nemotron_h_omni vision 4096 21504 4 32 8 128 131072 4096 - -
olmo causal 4096 11008 32 32 - - 50304 2048 - -
olmo2 causal 4096 11008 32 32 - - 50304 2048 - -
olmo3 causal 4096 11008 32 32 - - 50304 2048 4096 -
olmo_hybrid causal 3840 11008 32 30 - - 100352 65536 - -
olmoe causal 2048 2048 16 16 - - 50304 4096 - -
openai-gpt causal 768 - 12 12 - - 40478 512 - tied
opt causal 768 3072 12 12 - - 50272 2048 - tied
ovis2 vision 4096 22016 32 32 32 - 151936 32768 - tied
paddleocr_vl vision 1024 3072 18 16 2 128 103424 131072 - tied
paddleocr_vl_text nested 1024 3072 18 16 2 128 103424 131072 - tied
paligemma vision 2048 16384 18 8 - 256 257152 8192 - tied
pegasus causal 1024 4096 12 16 - - 50265 1024 - tied
perception_lm vision 4096 11008 32 32 - - 32000 2048 - -
persimmon causal 4096 16384 36 64 - - 262144 16384 - -
phi causal 2048 8192 24 32 - - 51200 2048 - -
phi3 causal 3072 8192 32 32 - - 32064 4096 - -
phi4_multimodal causal 3072 8192 32 32 8 - 200064 131072 - -
phimoe causal 4096 6400 32 32 8 - 32064 131072 - -
pi0 vision - - - - - - - - - -
pix2struct vision 768 - 12 12 - - 50244 - - -
pix2struct_text_model nested 768 - 12 12 - - 50244 - - -
plbart causal 768 3072 6 12 - - 50005 1024 - tied
pp_chart2table vision 1024 2816 24 16 - - 151860 32768 - tied
pp_formulanet vision 512 2048 12 16 - - 50000 2560 - -
pp_formulanet_text nested 512 2048 8 16 - - 50000 2560 - -
prophetnet causal 1024 4096 12 16 - - 30522 512 - tied
qianfan_ocr vision 4096 22016 32 32 32 128 151936 32768 - -
qwen2 causal 4096 22016 32 32 32 - 151936 32768 - -
qwen2_5_omni_text nested 3584 18944 28 28 4 - 152064 32768 - tied
qwen2_5_omni_thinker vision 3584 18944 28 28 4 - 152064 32768 - -
qwen2_5_vl vision 8192 29568 80 64 8 - 152064 32768 - -
qwen2_5_vl_text nested 8192 29568 80 64 8 - 152064 32768 - -
qwen2_moe causal 2048 5632 24 16 16 - 151936 32768 - -
qwen2_vl vision 8192 29568 80 64 8 - 152064 32768 - -
qwen2_vl_text nested 8192 29568 80 64 8 - 152064 32768 - -
qwen3 causal 4096 22016 32 32 32 128 151936 32768 - -
qwen3_5 causal 4096 12288 32 16 4 256 248320 32768 - -
qwen3_5_moe causal 2048 - 40 16 2 256 248320 32768 - -
qwen3_5_moe_text causal 2048 - 40 16 2 256 248320 32768 - -
qwen3_5_text causal 4096 12288 32 16 4 256 248320 32768 - -
qwen3_moe causal 2048 6144 24 32 4 - 151936 32768 - -
qwen3_next causal 2048 5632 48 16 2 256 151936 32768 - -
qwen3_omni_moe_text nested 2048 18944 28 28 4 - 3584 32768 - -
qwen3_omni_moe_thinker vision 2048 18944 28 28 4 - 3584 32768 - -
qwen3_vl vision 4096 22016 32 32 32 128 151936 128000 - -
qwen3_vl_moe vision 2048 5632 24 16 16 - 151936 128000 - -
qwen3_vl_moe_text nested 2048 5632 24 16 16 - 151936 128000 - tied
qwen3_vl_text nested 4096 22016 32 32 32 128 151936 128000 - -
qwen4_exp causal 2048 - 40 16 2 256 248320 32768 - -
qwen4_exp_text causal 2048 - 40 16 2 256 248320 32768 - -
recurrent_gemma causal 2560 7680 26 10 - - 256000 - 2048 tied
reformer causal 256 - 6 12 - - 320 4096 - -
rembert causal 1152 4608 32 18 - - 250300 512 - -
roberta causal 768 3072 12 12 - - 50265 512 - tied
roberta-prelayernorm causal 768 3072 12 12 - - 50265 512 - tied
roc_bert causal 768 3072 12 12 - - 30522 512 - tied
roformer causal 768 3072 12 12 - - 50000 1536 - tied
rwkv causal 4096 16384 32 - - - 50277 1024 - -
sarvam_mla causal 4096 16384 32 64 - 64 262144 4096 - -
sarvam_moe causal 4096 8192 19 64 4 64 262144 131072 - -
seed_oss causal 4096 27648 64 80 8 128 155136 524288 - -
shieldgemma2 vision 2304 9216 26 8 4 256 262208 131072 4096 tied
smollm3 causal 2048 11008 36 16 4 - 128256 32768 - tied
smolvlm vision 4096 11008 32 32 - - 32000 2048 - -
solar_open causal 4096 - 48 64 8 128 196608 131072 - -
stablelm causal 2560 6912 32 32 32 - 50304 4096 - -
starcoder2 causal 3072 12288 30 24 2 - 49152 4096 - tied
step3p5 nested 4096 11264 45 64 8 128 128815 128000 - -
step3p7 vision 4096 11264 45 64 8 128 128815 128000 - -
t5gemma2 vision 2304 9216 26 8 4 256 262208 131072 4096 tied
t5gemma2_decoder nested 2304 9216 26 8 4 256 262208 131072 4096 tied
trocr causal 1024 4096 12 16 - - 50265 512 - tied
udop vision 1024 - 24 16 - - 33201 - - tied
unlimited_ocr vision 1280 6848 12 10 10 - 129280 32768 128 -
unlimited_ocr_text nested 1280 6848 12 10 10 - 129280 32768 128 -
vaultgemma causal 2304 9216 26 8 4 256 256000 8192 4096 tied
video_llama_3 vision 4096 22016 32 32 32 - 151936 32768 - -
video_llava vision 4096 11008 32 32 - - 32000 2048 - -
vipllava vision 4096 11008 32 32 - - 32000 2048 - -
vision-encoder-decoder vision 768 3072 12 12 - - 30522 512 - -
whisper causal 384 1536 4 6 - - 51865 - - tied
xglm causal 1024 4096 24 16 - - 256008 2048 - tied
xlm causal 2048 - 12 16 - - 30145 512 - tied
xlm-roberta causal 768 3072 12 12 - - 30522 512 - tied
xlm-roberta-xl causal 2560 10240 36 32 - - 250880 514 - tied
xlnet causal 1024 - 24 16 - - 32000 - - tied
xlstm causal 4096 - 32 8 - - 50304 - - -
xmod causal 768 3072 12 12 - - 30522 512 - tied
youtu causal 2048 6144 32 16 16 64 128256 131072 - tied
zamba causal 3712 14848 76 16 16 - 32000 4096 - tied
zamba2 causal 2560 10240 54 32 - - 32000 4096 - tied
zaya causal 2048 - 40 8 2 128 262272 131072 - tied
"""
