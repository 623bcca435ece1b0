//! GGUF files that tests write by the format's definition.

use safetensors::tensor::Dtype;
use serde_json::Value as Json;

use crate::support::{Draft, Stored};

/// A value of metadata.
#[derive(Clone)]
pub(crate) enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
    Texts(Vec<String>),
    Floats(Vec<f32>),
    Integers(Vec<i32>),
    /// A type and the bytes after it.
    Raw(u32, Vec<u8>),
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl Meta {
    fn bytes(&self) -> Vec<u8> {
        let typed = |kind: u32, bytes: &[u8]| [&kind.to_le_bytes()[..], bytes].concat();
        let list = |kind: u32, length: usize, bytes: Vec<u8>| {
            typed(9, &[&kind.to_le_bytes()[..], &(length as u64).to_le_bytes(), &bytes].concat())
        };
        match self {
            Self::U32(n) => typed(4, &n.to_le_bytes()),
            Self::F32(n) => typed(6, &n.to_le_bytes()),
            Self::Bool(flag) => typed(7, &[u8::from(*flag)]),
            Self::Text(value) => typed(8, &text(value)),
            Self::Texts(values) => list(8, values.len(), values.iter().flat_map(|value| text(value)).collect()),
            Self::Floats(values) => list(6, values.len(), values.iter().flat_map(|n| n.to_le_bytes()).collect()),
            Self::Integers(values) => list(5, values.len(), values.iter().flat_map(|n| n.to_le_bytes()).collect()),
            Self::Raw(kind, bytes) => typed(*kind, bytes),
        }
    }
}

/// A tensor: its shape, outermost dimension first, and its bytes.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
    /// Where it begins in the data; after the one before where absent.
    pub(crate) offset: Option<u64>,
}

/// A file in the making.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) meta: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<Tensor>,
}

impl File {
    pub(crate) fn set(&mut self, key: &str, value: Meta) -> &mut Self {
        self.meta.retain(|(own, _)| own != key);
        self.meta.push((key.to_owned(), value));
        self
    }

    pub(crate) fn put(&mut self, key: &str, value: Meta) {
        self.set(key, value);
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.meta.retain(|(own, _)| own != key);
    }

    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.meta.len() as u64).to_le_bytes());
        for (key, value) in &self.meta {
            out.extend(text(key));
            out.extend(value.bytes());
        }
        let mut data: Vec<u8> = Vec::new();
        for tensor in &self.tensors {
            data.resize(data.len().next_multiple_of(self.alignment), 0);
            out.extend(text(&tensor.name));
            out.extend(u32::try_from(tensor.shape.len()).unwrap().to_le_bytes());
            tensor.shape.iter().rev().for_each(|size| out.extend((*size as u64).to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&tensor.bytes);
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(data);
        out
    }

    /// What llama.cpp makes of a checkpoint of an architecture: other names, rows of queries and keys as pairs where it has
    /// them so, norms with the 1 of Gemma, and layers of GPT-2 turned.
    pub(crate) fn of(draft: &Draft, architecture: &'static str) -> Self {
        let config = &draft.config;
        let size = |keys: &[&str]| {
            let found = keys.iter().find_map(|key| config.get(*key)?.as_u64());
            Meta::U32(u32::try_from(found.unwrap()).unwrap())
        };
        let number = |key: &str| Meta::F32(config[key].as_f64().unwrap() as f32);
        let mut file = Self { version: 3, alignment: 32, meta: Vec::new(), tensors: Vec::new() };
        file.set("general.architecture", Meta::Text(architecture));
        let mut own = |key: &str, value: Meta| file.put(&format!("{architecture}.{key}"), value);
        own("context_length", size(&["max_position_embeddings", "n_positions"]));
        own("embedding_length", size(&["hidden_size", "n_embd"]));
        own("block_count", size(&["num_hidden_layers", "n_layer"]));
        own("attention.head_count", size(&["num_attention_heads", "n_head"]));
        if architecture == "gpt2" {
            own("feed_forward_length", Meta::U32(4 * u32::try_from(config["n_embd"].as_u64().unwrap()).unwrap()));
            own("attention.layer_norm_epsilon", number("layer_norm_epsilon"));
        } else {
            own("feed_forward_length", size(&["intermediate_size"]));
            own("attention.head_count_kv", size(&["num_key_value_heads"]));
            own("attention.layer_norm_rms_epsilon", number("rms_norm_eps"));
            own("rope.freq_base", Meta::F32(config["rope_parameters"]["rope_theta"].as_f64().unwrap() as f32));
            if config.get("head_dim").is_some() {
                own("attention.key_length", size(&["head_dim"]));
                own("attention.value_length", size(&["head_dim"]));
            }
        }
        for key in
            ["attn_logit_softcapping", "final_logit_softcapping"].into_iter().filter(|_| architecture == "gemma2")
        {
            own(key, number(key));
        }
        if config.get("sliding_window").is_some_and(Json::is_u64) {
            own("attention.sliding_window", size(&["sliding_window"]));
        }
        for (name, stored) in &draft.tensors {
            let stored = changed(architecture, name, stored, config);
            let kind = match stored.dtype {
                Dtype::F32 => 0,
                Dtype::F16 => 1,
                Dtype::BF16 => 30,
                other => panic!("{other:?}"),
            };
            let name = renamed(architecture, name);
            file.tensors.push(Tensor { name, kind, shape: stored.shape, bytes: stored.bytes, offset: None });
        }
        file
    }
}

/// The name of a tensor in the file, as gguf-py's tensor_mapping.py has it.
fn renamed(architecture: &str, name: &str) -> String {
    let fixed = [
        ("model.embed_tokens.", "token_embd."),
        ("model.norm.", "output_norm."),
        ("lm_head.", "output."),
        ("transformer.wte.", "token_embd."),
        ("transformer.wpe.", "position_embd."),
        ("transformer.ln_f.", "output_norm."),
    ];
    if let Some((from, to)) = fixed.iter().find(|(from, _)| name.starts_with(from)) {
        return name.replacen(from, to, 1);
    }
    let gemma2 = architecture == "gemma2";
    let modules = [
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", if gemma2 { "post_attention_norm" } else { "ffn_norm" }),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("ln_1", "attn_norm"),
        ("attn.c_attn", "attn_qkv"),
        ("attn.c_proj", "attn_output"),
        ("ln_2", "ffn_norm"),
        ("mlp.c_fc", "ffn_up"),
        ("mlp.c_proj", "ffn_down"),
    ];
    let rest = name.strip_prefix("model.layers.").or(name.strip_prefix("transformer.h.")).unwrap();
    let (layer, rest) = rest.split_once('.').unwrap();
    let (module, kind) = rest.rsplit_once('.').unwrap();
    let own = modules.iter().find(|(from, _)| *from == module).unwrap().1;
    format!("blk.{layer}.{own}.{kind}")
}

/// The rows of queries or keys of so many heads, where the halves of a head become pairs.
pub(crate) fn halves_to_pairs(stored: &Stored, heads: usize) -> Stored {
    let mut out = stored.clone();
    let row = stored.bytes.len() / stored.shape[0];
    // reshape(heads, 2, half, ..).swapaxes(1, 2).
    let half = stored.shape[0] / heads / 2;
    for (head, part, i) in (0..heads).flat_map(|h| (0..2).flat_map(move |p| (0..half).map(move |i| (h, p, i)))) {
        let (from, to) = ((head * 2 + part) * half + i, (head * half + i) * 2 + part);
        out.bytes[to * row..][..row].copy_from_slice(&stored.bytes[from * row..][..row]);
    }
    out
}

fn changed(architecture: &str, name: &str, stored: &Stored, config: &Json) -> Stored {
    let heads = |key: &str| usize::try_from(config[key].as_u64().unwrap()).unwrap();
    let mut out = stored.clone();
    let row = stored.bytes.len() / stored.shape[0];
    if architecture == "llama" && (name.contains("q_proj") || name.contains("k_proj")) {
        let heads = heads(if name.contains("q_proj") { "num_attention_heads" } else { "num_key_value_heads" });
        out = halves_to_pairs(stored, heads);
    }
    if architecture == "gpt2" && stored.shape.len() == 2 && name.contains(".h.") {
        let [rows, columns] = stored.shape[..] else { unreachable!() };
        let element = stored.bytes.len() / rows / columns;
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            let from = &stored.bytes[(i * columns + j) * element..][..element];
            out.bytes[(j * rows + i) * element..][..element].copy_from_slice(from);
        }
        out.shape = vec![columns, rows];
    }
    if architecture.starts_with("gemma") && name.ends_with("norm.weight") {
        let float = |bytes: &[u8]| match stored.dtype {
            Dtype::F32 => f32::from_le_bytes(bytes.try_into().unwrap()),
            _ => half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
        };
        let element = row;
        out.bytes = stored.bytes.chunks(element).flat_map(|bytes| (float(bytes) + 1.0).to_le_bytes()).collect();
        out.dtype = Dtype::F32;
    }
    out
}
