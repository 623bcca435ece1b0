//! One file for each architecture: the names of its weights, the keys of its configuration, and its graph. To add one: a
//! file with its `ARCHITECTURE`, its module here, and a line in [`ARCHITECTURES`].

pub(crate) mod afmoe;
pub(crate) mod albert;
pub(crate) mod apertus;
pub(crate) mod arcee;
pub(crate) mod audio_spectrogram_transformer;
pub(crate) mod bamba;
pub(crate) mod bart;
pub(crate) mod beit;
pub(crate) mod bert;
pub(crate) mod biogpt;
pub(crate) mod blip;
pub(crate) mod bloom;
pub(crate) mod chinese_clip;
pub(crate) mod clap;
pub(crate) mod clip;
pub(crate) mod codegen;
pub(crate) mod cohere;
pub(crate) mod cohere2;
pub(crate) mod convbert;
pub(crate) mod convnext;
pub(crate) mod cwm;
pub(crate) mod deberta;
pub(crate) mod deberta_v2;
pub(crate) mod deepseek_v2;
pub(crate) mod deepseek_v3;
pub(crate) mod deit;
pub(crate) mod depth_anything;
pub(crate) mod detr;
pub(crate) mod dinov2;
pub(crate) mod dinov3_vit;
pub(crate) mod distilbert;
pub(crate) mod dots1;
pub(crate) mod dpt;
pub(crate) mod electra;
pub(crate) mod ernie;
pub(crate) mod ernie4_5;
pub(crate) mod ernie4_5_moe;
pub(crate) mod esm;
pub(crate) mod eurobert;
pub(crate) mod exaone;
pub(crate) mod exaone4;
pub(crate) mod exaone_moe;
pub(crate) mod eyes;
pub(crate) mod falcon;
pub(crate) mod falcon_h1;
pub(crate) mod falcon_mamba;
pub(crate) mod flex_olmo;
pub(crate) mod gemma;
pub(crate) mod gemma2;
pub(crate) mod gemma3;
pub(crate) mod gemma3_vision;
pub(crate) mod gemma3n;
pub(crate) mod gemma4;
pub(crate) mod glm;
pub(crate) mod glm4;
pub(crate) mod glm4_moe;
pub(crate) mod glm4_moe_lite;
pub(crate) mod gpt2;
pub(crate) mod gpt_bigcode;
pub(crate) mod gpt_neo;
pub(crate) mod gpt_neox;
pub(crate) mod gpt_oss;
pub(crate) mod gptj;
pub(crate) mod granite;
pub(crate) mod granitemoe;
pub(crate) mod granitemoehybrid;
pub(crate) mod granitemoeshared;
pub(crate) mod gte;
pub(crate) mod helium;
pub(crate) mod hgnet_v2;
pub(crate) mod hunyuan_v1_dense;
pub(crate) mod hunyuan_v1_moe;
pub(crate) mod hyperclovax;
pub(crate) mod idefics3;
pub(crate) mod internlm3;
pub(crate) mod iquestcoder;
pub(crate) mod jais2;
pub(crate) mod jamba;
pub(crate) mod jina_embeddings_v3;
pub(crate) mod layoutlm;
pub(crate) mod lfm2;
pub(crate) mod lfm2_moe;
pub(crate) mod llama;
pub(crate) mod llama4;
pub(crate) mod llava;
pub(crate) mod longt5;
pub(crate) mod mamba;
pub(crate) mod mamba2;
pub(crate) mod marian;
pub(crate) mod megatron_bert;
pub(crate) mod minicpm3;
pub(crate) mod minimax_m2;
pub(crate) mod ministral;
pub(crate) mod ministral3;
pub(crate) mod mistral;
pub(crate) mod mixtral;
pub(crate) mod mobilebert;
pub(crate) mod mobilevit;
pub(crate) mod model2vec;
pub(crate) mod modernbert;
pub(crate) mod modernbert_decoder;
pub(crate) mod moonshine;
pub(crate) mod mpnet;
pub(crate) mod mpt;
pub(crate) mod mt5;
pub(crate) mod nanochat;
pub(crate) mod nemotron;
pub(crate) mod nemotron_h;
pub(crate) mod nomic_bert;
pub(crate) mod nystromformer;
pub(crate) mod olmo;
pub(crate) mod olmo2;
pub(crate) mod olmo3;
pub(crate) mod olmoe;
pub(crate) mod opt;
pub(crate) mod paligemma;
pub(crate) mod parakeet;
pub(crate) mod persimmon;
pub(crate) mod phi;
pub(crate) mod phi3;
pub(crate) mod phimoe;
pub(crate) mod qwen2;
pub(crate) mod qwen2_moe;
pub(crate) mod qwen2_vl;
pub(crate) mod qwen3;
pub(crate) mod qwen3_5;
pub(crate) mod qwen3_5_moe;
pub(crate) mod qwen3_moe;
pub(crate) mod qwen3_next;
pub(crate) mod qwen3_vl;
pub(crate) mod qwen_eyes;
pub(crate) mod qwen_vl;
pub(crate) mod rembert;
pub(crate) mod resnet;
pub(crate) mod roberta;
pub(crate) mod roformer;
pub(crate) mod rt_detr;
pub(crate) mod sam;
pub(crate) mod seed_oss;
pub(crate) mod segformer;
pub(crate) mod siglip;
pub(crate) mod siglip2;
pub(crate) mod smollm3;
pub(crate) mod solar_open;
pub(crate) mod squeezebert;
pub(crate) mod stablelm;
pub(crate) mod starcoder2;
pub(crate) mod swin;
pub(crate) mod swinv2;
pub(crate) mod t5;
pub(crate) mod umt5;
pub(crate) mod vaultgemma;
pub(crate) mod vision_encoder_decoder;
pub(crate) mod vit;
pub(crate) mod vit_msn;
pub(crate) mod vitpose;
pub(crate) mod wav2vec2;
pub(crate) mod wav2vec2_bert;
pub(crate) mod whisper;
pub(crate) mod xglm;
pub(crate) mod yolos;
pub(crate) mod youtu;

use crate::Architecture;

/// Every architecture that can be loaded.
pub const ARCHITECTURES: &[Architecture] = &[
    // In the order of their names, which is that of messages.
    afmoe::ARCHITECTURE,
    albert::ARCHITECTURE,
    apertus::ARCHITECTURE,
    arcee::ARCHITECTURE,
    audio_spectrogram_transformer::ARCHITECTURE,
    bamba::ARCHITECTURE,
    bart::ARCHITECTURE,
    beit::ARCHITECTURE,
    bert::ARCHITECTURE,
    biogpt::ARCHITECTURE,
    blip::ARCHITECTURE,
    blip::IMAGE,
    bloom::ARCHITECTURE,
    roberta::CAMEMBERT,
    chinese_clip::ARCHITECTURE,
    chinese_clip::TEXT,
    chinese_clip::IMAGE,
    clap::ARCHITECTURE,
    clap::AUDIO,
    clap::TEXT,
    clip::ARCHITECTURE,
    clip::TEXT,
    clip::IMAGE,
    codegen::ARCHITECTURE,
    cohere::ARCHITECTURE,
    cohere2::ARCHITECTURE,
    convbert::ARCHITECTURE,
    convnext::ARCHITECTURE,
    convnext::V2,
    cwm::ARCHITECTURE,
    rt_detr::D_FINE,
    wav2vec2::DATA2VEC,
    roberta::DATA2VEC_TEXT,
    beit::DATA2VEC,
    deberta::ARCHITECTURE,
    deberta_v2::ARCHITECTURE,
    deepseek_v2::ARCHITECTURE,
    deepseek_v3::ARCHITECTURE,
    deit::ARCHITECTURE,
    depth_anything::ARCHITECTURE,
    detr::ARCHITECTURE,
    dinov2::ARCHITECTURE,
    dinov2::WITH_REGISTERS,
    dinov3_vit::ARCHITECTURE,
    distilbert::ARCHITECTURE,
    swin::DONUT,
    dots1::ARCHITECTURE,
    dpt::ARCHITECTURE,
    electra::ARCHITECTURE,
    ernie::ARCHITECTURE,
    ernie4_5::ARCHITECTURE,
    ernie4_5_moe::ARCHITECTURE,
    esm::ARCHITECTURE,
    eurobert::ARCHITECTURE,
    exaone::ARCHITECTURE,
    exaone4::ARCHITECTURE,
    exaone_moe::ARCHITECTURE,
    falcon::ARCHITECTURE,
    falcon_h1::ARCHITECTURE,
    falcon_mamba::ARCHITECTURE,
    flex_olmo::ARCHITECTURE,
    gemma::ARCHITECTURE,
    gemma2::ARCHITECTURE,
    gemma3_vision::ARCHITECTURE,
    gemma3::ARCHITECTURE,
    gemma3n::ARCHITECTURE,
    gemma4::ARCHITECTURE,
    glm::ARCHITECTURE,
    glm4::ARCHITECTURE,
    glm4_moe::ARCHITECTURE,
    glm4_moe_lite::ARCHITECTURE,
    gpt2::ARCHITECTURE,
    gpt_bigcode::ARCHITECTURE,
    gpt_neo::ARCHITECTURE,
    gpt_neox::ARCHITECTURE,
    gpt_oss::ARCHITECTURE,
    gptj::ARCHITECTURE,
    granite::ARCHITECTURE,
    granitemoe::ARCHITECTURE,
    granitemoehybrid::ARCHITECTURE,
    granitemoeshared::ARCHITECTURE,
    gte::ARCHITECTURE,
    helium::ARCHITECTURE,
    hgnet_v2::ARCHITECTURE,
    wav2vec2::HUBERT,
    hunyuan_v1_dense::ARCHITECTURE,
    hunyuan_v1_moe::ARCHITECTURE,
    hyperclovax::ARCHITECTURE,
    idefics3::ARCHITECTURE,
    internlm3::ARCHITECTURE,
    iquestcoder::ARCHITECTURE,
    jais2::ARCHITECTURE,
    jamba::ARCHITECTURE,
    jina_embeddings_v3::ARCHITECTURE,
    layoutlm::ARCHITECTURE,
    lfm2::ARCHITECTURE,
    lfm2_moe::ARCHITECTURE,
    llama::ARCHITECTURE,
    llama4::ARCHITECTURE,
    llava::ARCHITECTURE,
    longt5::ARCHITECTURE,
    mamba::ARCHITECTURE,
    mamba2::ARCHITECTURE,
    marian::ARCHITECTURE,
    megatron_bert::ARCHITECTURE,
    clip::METACLIP_2,
    clip::METACLIP_2_TEXT,
    clip::METACLIP_2_IMAGE,
    minicpm3::ARCHITECTURE,
    minimax_m2::ARCHITECTURE,
    ministral::ARCHITECTURE,
    ministral3::ARCHITECTURE,
    mistral::ARCHITECTURE,
    mixtral::ARCHITECTURE,
    mobilebert::ARCHITECTURE,
    mobilevit::ARCHITECTURE,
    model2vec::ARCHITECTURE,
    modernbert::ARCHITECTURE,
    modernbert_decoder::ARCHITECTURE,
    moonshine::ARCHITECTURE,
    mpnet::ARCHITECTURE,
    mpt::ARCHITECTURE,
    mt5::ARCHITECTURE,
    nanochat::ARCHITECTURE,
    nemotron::ARCHITECTURE,
    nemotron_h::ARCHITECTURE,
    gte::NEW,
    nomic_bert::ARCHITECTURE,
    nystromformer::ARCHITECTURE,
    olmo::ARCHITECTURE,
    olmo2::ARCHITECTURE,
    olmo3::ARCHITECTURE,
    olmoe::ARCHITECTURE,
    opt::ARCHITECTURE,
    paligemma::ARCHITECTURE,
    parakeet::ARCHITECTURE,
    parakeet::ENCODER,
    persimmon::ARCHITECTURE,
    phi::ARCHITECTURE,
    phi3::ARCHITECTURE,
    phimoe::ARCHITECTURE,
    qwen2::ARCHITECTURE,
    qwen_vl::QWEN2_5,
    qwen2_vl::QWEN2_5_VL,
    qwen2_moe::ARCHITECTURE,
    qwen_vl::QWEN2,
    qwen2_vl::ARCHITECTURE,
    qwen3::ARCHITECTURE,
    qwen3_5_moe::ARCHITECTURE,
    qwen3_5::ARCHITECTURE,
    qwen3_moe::ARCHITECTURE,
    qwen3_next::ARCHITECTURE,
    qwen_vl::QWEN3,
    qwen_vl::QWEN3_MOE,
    qwen3_vl::MIXTURE,
    qwen3_vl::ARCHITECTURE,
    rembert::ARCHITECTURE,
    resnet::ARCHITECTURE,
    roberta::ARCHITECTURE,
    roformer::ARCHITECTURE,
    rt_detr::ARCHITECTURE,
    rt_detr::V2,
    sam::ARCHITECTURE,
    seed_oss::ARCHITECTURE,
    segformer::ARCHITECTURE,
    siglip::ARCHITECTURE,
    siglip2::ARCHITECTURE,
    siglip2::TEXT,
    siglip2::IMAGE,
    siglip::TEXT,
    siglip::IMAGE,
    smollm3::ARCHITECTURE,
    idefics3::SMOLVLM,
    solar_open::ARCHITECTURE,
    squeezebert::ARCHITECTURE,
    stablelm::ARCHITECTURE,
    starcoder2::ARCHITECTURE,
    swin::ARCHITECTURE,
    swinv2::ARCHITECTURE,
    t5::ARCHITECTURE,
    detr::TABLE,
    umt5::ARCHITECTURE,
    wav2vec2::UNISPEECH,
    wav2vec2::UNISPEECH_SAT,
    vaultgemma::ARCHITECTURE,
    vision_encoder_decoder::ARCHITECTURE,
    vit::ARCHITECTURE,
    vit_msn::ARCHITECTURE,
    vitpose::ARCHITECTURE,
    wav2vec2::ARCHITECTURE,
    wav2vec2_bert::ARCHITECTURE,
    wav2vec2::CONFORMER,
    wav2vec2::WAVLM,
    whisper::ARCHITECTURE,
    xglm::ARCHITECTURE,
    roberta::XLM_ROBERTA,
    roberta::XLM_ROBERTA_XL,
    yolos::ARCHITECTURE,
    youtu::ARCHITECTURE,
];

impl Architecture {
    /// The architecture of a `model_type`.
    #[must_use]
    pub fn find(model_type: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|a| a.model_type == model_type)
    }

    /// The architecture of a class of the transformers library such as `BertForMaskedLM`.
    pub(crate) fn of_class(class: &str) -> Option<&'static Architecture> {
        const AFTER_PREFIX: &[&str] = &["For", "Model", "LMHeadModel"];
        let rest = |a: &Architecture| class.strip_prefix(a.class_prefix);
        ARCHITECTURES.iter().find(|a| rest(a).is_some_and(|r| AFTER_PREFIX.iter().any(|p| r.starts_with(p))))
    }
}
