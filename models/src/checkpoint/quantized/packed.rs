//! GPTQ (Frantar et al. 2022, arXiv:2210.17323) and AWQ (Lin et al. 2023, arXiv:2306.00978), as AutoGPTQ, GPTQModel and
//! AutoAWQ store them: `qweight`, `scales` [groups, out], `qzeros`, and `g_idx` [in], the group of each input.

use planish_ir::weight::{Channels, Packing};
use planish_ir::{DType, Weight};
use serde_json::Value;

use super::Dequantized;
use super::layer::{FLOATS, Layer};
use super::settings::{Keys, Settings};
use crate::ModelError;
use crate::checkpoint::config::is_off;

/// The bits of the integers that codes share.
const WORD: usize = 32;

/// The layout of codes and zero points.
enum Layout {
    /// GPTQ: `qweight` [in / codes of a word, out]; zero points are stored less 1 in the first format.
    Gptq { zeros: Packing },
    /// AWQ: `qweight` [in, out / codes of a word].
    Awq,
}

/// The tensors say which layers are quantized, and whether codes are symmetric.
const GPTQ: Keys = Keys {
    used: &["quant_method", "bits", "group_size", "desc_act", "checkpoint_format", "format", "pack_dtype", "dynamic"],
    irrelevant: &[
        "sym",
        // How codes were chosen.
        "act_group_aware",
        "batch_size",
        "block_name_to_quantize",
        "cache_block_outputs",
        "damp_auto_increment",
        "damp_percent",
        "dataset",
        "lm_head",
        "max_input_length",
        "meta",
        "model_file_base_name",
        "model_name_or_path",
        "model_seqlen",
        "module_name_preceding_first_block",
        "modules_in_block_to_quantize",
        "modules_to_not_convert",
        "mse",
        "pad_token_id",
        "quantizer",
        "static_groups",
        "tokenizer",
        "true_sequential",
        // How other programs compute with them.
        "backend",
        "disable_exllama",
        "exllama_config",
        "use_cuda_fp16",
        "use_exllama",
    ],
    off: &["adapter", "is_marlin_format", "rotation"],
};

const AWQ: Keys = Keys {
    // AutoAWQ writes `w_bit` and `q_group_size` too, in a file of its own.
    used: &["quant_method", "bits", "group_size", "zero_point", "version", "format"],
    irrelevant: &[
        "backend",
        "do_fuse",
        "exllama_config",
        "fuse_max_seq_len",
        "modules_to_fuse",
        "modules_to_not_convert",
        "q_group_size",
        "w_bit",
    ],
    off: &["adapter", "dynamic", "rotation"],
};

/// The settings of a checkpoint.
pub(crate) struct Packed {
    layout: Layout,
    bits: usize,
    /// The inputs that share a scale: all where absent.
    group_size: Option<usize>,
}

impl Packed {
    pub(super) fn gptq(settings: &Settings<'_, '_>) -> Result<Self, ModelError> {
        let bits = settings.bits("bits", &[2, 4, 8])?;
        settings.check(&GPTQ)?;
        settings.only("checkpoint_format", &["gptq", "gptq_v2"])?;
        settings.only("format", &["gptq", "gptq_v2"])?;
        settings.only("pack_dtype", &["int32"])?;
        settings.boolean("desc_act", false)?;
        refuse_overrides(settings)?;
        let format = match settings.text("checkpoint_format")? {
            None => settings.text("format")?,
            given => given,
        };
        let zeros = match format {
            Some("gptq_v2") => Packing::Words,
            _ => Packing::NextWords,
        };
        Ok(Self { layout: Layout::Gptq { zeros }, bits, group_size: settings.group_size("group_size")? })
    }

    pub(super) fn awq(settings: &Settings<'_, '_>) -> Result<Self, ModelError> {
        let bits = settings.bits("bits", &[4])?;
        settings.check(&AWQ)?;
        settings.only("version", &["gemm"])?;
        settings.only("format", &["gemm"])?;
        if !settings.boolean("zero_point", true)? {
            let key = settings.key;
            return Err(settings
                .config
                .error(format!("`{key}.zero_point` is false: AWQ without zero points is not supported")));
        }
        Ok(Self { layout: Layout::Awq, bits, group_size: settings.group_size("group_size")? })
    }

    /// The weight of a layer.
    pub(super) fn weight(&self, layer: &mut Layer<'_>) -> Result<Dequantized, ModelError> {
        let per_word = WORD / self.bits;
        let dtype = match self.bits {
            2 => DType::U2,
            4 => DType::U4,
            _ => DType::U8,
        };
        let (words, [rows, columns]) = layer.matrix(".qweight", &[DType::I32])?;
        let too_many = |layer: &Layer<'_>| layer.error(".qweight", "its size does not fit 64 bits".to_owned());
        let times = |n: usize| n.checked_mul(per_word);
        let sizes = match self.layout {
            Layout::Gptq { .. } => times(rows).map(|inputs| [columns, inputs]),
            Layout::Awq => times(columns).map(|outputs| [outputs, rows]),
        };
        let [outputs, inputs] = sizes.ok_or_else(|| too_many(layer))?;
        let group = self.group_size.unwrap_or(inputs);
        if !inputs.is_multiple_of(group) {
            return Err(layer.error(
                ".qweight",
                format!(
                    "the layer has {inputs} inputs, which `quantization_config.group_size` {group} does not divide"
                ),
            ));
        }
        if !outputs.is_multiple_of(per_word) {
            return Err(layer.error(".qweight", format!(
                "the layer has {outputs} outputs, which is not a multiple of {per_word}: zero points cannot share words"
            )));
        }
        let groups = inputs / group;
        let why = format!("{inputs} inputs in groups of {group}, {outputs} outputs");
        let scales = layer.shaped(".scales", FLOATS, &[groups, outputs], &why)?;
        let zeros = layer.shaped(".qzeros", &[DType::I32], &[groups, outputs / per_word], &why)?;

        let unpacked = |words: &Weight, packing: Packing, shape: &[usize]| {
            Weight::unpack(std::slice::from_ref(words), packing, dtype, shape)
        };
        let (codes, zeros) = match self.layout {
            // The words of an output side by side have its codes side by side.
            Layout::Gptq { zeros: packing } => (
                words.transpose(&[1, 0]).and_then(|words| unpacked(&words, Packing::Words, &[outputs, inputs])),
                unpacked(&zeros, packing, &[groups, outputs]),
            ),
            Layout::Awq => (
                unpacked(&words, Packing::Awq, &[inputs, outputs]).and_then(|codes| codes.transpose(&[1, 0])),
                unpacked(&zeros, Packing::Awq, &[groups, outputs]),
            ),
        };
        let zeros = zeros.and_then(|zeros| zeros.transpose(&[1, 0]));
        let scales = scales.transpose(&[1, 0]).and_then(|scales| scales.cast(DType::F32));
        let (Some(codes), Some(zeros), Some(scales)) = (codes, zeros, scales) else { return Err(too_many(layer)) };
        let order = match self.layout {
            Layout::Gptq { .. } => group_order(layer, ".g_idx", inputs, group)?,
            Layout::Awq => None,
        };
        grouped(&codes, &scales, Some(&zeros), group, order).ok_or_else(|| too_many(layer))
    }
}

/// Refuses other settings for modules of some names, which GPTQModel writes as `dynamic`. A name that begins with `-:` says that
/// modules are not quantized, which their tensors say too.
fn refuse_overrides(settings: &Settings<'_, '_>) -> Result<(), ModelError> {
    let Some(value) = settings.get("dynamic").filter(|value| !is_off(value)) else { return Ok(()) };
    let Value::Object(modules) = value else { return Err(settings.unexpected("dynamic", value, "an object")) };
    match modules.iter().find(|(name, other)| !name.starts_with("-:") && !is_off(other)) {
        Some((name, other)) => {
            Err(settings.unexpected(&format!("dynamic.{name}"), other, "no other settings for some modules"))
        }
        None => Ok(()),
    }
}

/// The order of the inputs by their groups, where groups are not neighbours: the tensor with an ending has the group of each.
pub(super) fn group_order(
    layer: &mut Layer<'_>,
    ending: &str,
    inputs: usize,
    group: usize,
) -> Result<Option<Vec<usize>>, ModelError> {
    let Some(tensor) = layer.find(ending, &[DType::I32])? else { return Ok(None) };
    layer.check_shape(ending, &tensor, &[inputs], "the group of each input")?;
    let indices = layer.read_indices(ending, &tensor)?;
    let mut counts = vec![0usize; inputs / group];
    for (input, index) in indices.iter().enumerate() {
        let count = usize::try_from(*index).ok().and_then(|index| counts.get_mut(index));
        let Some(count) = count else {
            let groups = inputs / group;
            return Err(
                layer.error(ending, format!("input {input} is of group {index}, but there are {groups} groups"))
            );
        };
        *count += 1;
    }
    if indices.iter().is_sorted() && counts.iter().all(|count| *count == group) {
        return Ok(None);
    }
    if let Some(other) = counts.iter().position(|count| *count != group) {
        return Err(layer.error(ending, format!("group {other} has {} inputs, expected {group}", counts[other])));
    }
    let mut order: Vec<usize> = (0..inputs).collect();
    order.sort_by_key(|input| indices[*input]);
    Ok(Some(order))
}

/// Codes [out, in] with scales and zero points [out, groups]. With an order, the groups are neighbours in that order of the
/// inputs.
pub(super) fn grouped(
    codes: &Weight,
    scales: &Weight,
    zeros: Option<&Weight>,
    group: usize,
    order: Option<Vec<usize>>,
) -> Option<Dequantized> {
    let blocks = Channels::Blocks { axis: 1, size: group };
    let Some(order) = order else {
        return Some(Dequantized { weight: codes.dequantize(blocks, scales, zeros)?, loses_codes: None });
    };
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, input)| places[*input] = place);
    let weight = codes.gather(1, &order)?.dequantize(blocks, scales, zeros)?.gather(1, &places)?;
    Some(Dequantized { weight, loses_codes: Some("inputs that share a scale are not neighbours (act-order)") })
}
