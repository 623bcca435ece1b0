//! From what is asked for to a plan of weights.

use std::collections::{BTreeMap, HashMap};

use planish_ir::ops::{Embedding, Experts, Gather};
use planish_ir::{DType, Graph, Op, ValueId};

use super::super::sites::{MIN_FEATURES, layer};
use super::{PlannedWeight, WeightForm, WeightMethod, WeightPlan};
use crate::legalize::reshaped;
use crate::pad::Found;
use crate::{Exceptions, KeptType, Named, Target};

/// The bits of the codes of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// It stays as it is.
    Keep,
    /// Codes of 4 bits.
    Four,
    /// Codes of 8 bits.
    Eight,
}

impl Bits {
    /// Those of a weight that keeps a type.
    fn of(ty: KeptType) -> Self {
        match ty {
            KeptType::Single | KeptType::Float => Self::Keep,
            KeptType::Eight => Self::Eight,
            KeptType::Four => Self::Four,
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct WeightSettings {
    /// The bits of linear layers.
    pub bits: Bits,
    /// The elements of a block; absent where an output feature is one block.
    pub block: Option<usize>,
    /// Whether blocks have zero points.
    pub zero_points: bool,
    /// How codes and scales are chosen.
    pub method: WeightMethod,
    /// Other types of weights: by the name of the weight or of a result, or an origin; of the layer that scores tokens, and the
    /// table of tokens where both are one; of a table of tokens that scores none. Without them, these two have 8 bits.
    pub keep: Exceptions,
    /// Weights that stay floats because they are not finite: by their names, and why.
    pub not_finite: BTreeMap<String, String>,
    /// Whether tables of tokens have blocks too, where the target looks them up. Otherwise each of their rows has one scale and codes of 8
    /// bits, which operators of any runtime look up.
    pub table_blocks: bool,
}

impl WeightSettings {
    /// Blocks of 32 without zero points.
    #[must_use]
    pub fn new(bits: Bits) -> Self {
        Self {
            bits,
            block: Some(32),
            zero_points: false,
            method: WeightMethod::default(),
            keep: Exceptions::default(),
            not_finite: BTreeMap::new(),
            table_blocks: true,
        }
    }

    /// For each exception, whether it names a weight that a layer of a graph takes, or the table of tokens.
    #[must_use]
    pub fn matched(&self, graph: &Graph) -> Vec<bool> {
        let (heads, tables) = (heads(graph), Found::of(graph).tables);
        let (mut order, uses) = uses(graph);
        order.retain(|weight| uses[weight].is_planned(tables.contains(weight)));
        self.keep.matched(&order, |named, weight| {
            let own = &uses[weight];
            let is_table = own.layers == 0 && tables.contains(weight);
            own.is(graph, *weight, named, heads.contains(weight), is_table)
        })
    }

    fn form(&self, bits: Bits, columns: usize, method: WeightMethod, reason: Option<String>) -> WeightForm {
        let codes = match (bits, self.zero_points) {
            (Bits::Keep, _) => return WeightForm::Float { reason: reason.unwrap_or_default() },
            (Bits::Four, false) => DType::I4,
            (Bits::Four, true) => DType::U4,
            (Bits::Eight, false) => DType::I8,
            (Bits::Eight, true) => DType::U8,
        };
        // A block that is larger than a row would be filled up.
        let block = self.block.map(|block| block.min(columns.next_power_of_two().max(LEAST_BLOCK)));
        WeightForm::Blocks { codes, block, method, reason }
    }
}

/// The fewest elements of a block.
const LEAST_BLOCK: usize = 16;

/// The uses of a weight.
#[derive(Default)]
pub(in super::super) struct Uses {
    /// The results of layers and lookups.
    pub(in super::super) results: Vec<ValueId>,
    pub(in super::super) layers: usize,
    pub(in super::super) lookups: usize,
    /// What the layers take, without repetition.
    inputs: Vec<ValueId>,
    /// The features that a layer takes and gives.
    pub(in super::super) features: Option<[usize; 2]>,
}

impl WeightPlan {
    /// A plan for a graph that has been raised.
    #[must_use]
    pub fn new(graph: &Graph, settings: &WeightSettings, target: &Target) -> Self {
        let found = Found::of(graph);
        let heads = heads(graph);
        let (order, uses) = uses(graph);
        let weights = order.into_iter().filter_map(|weight| {
            let own = uses.get(&weight)?;
            let is_head = heads.contains(&weight);
            if !own.is_planned(found.tables.contains(&weight)) {
                return None;
            }
            let form = form(graph, weight, own, settings, is_head, target.has_block_operators());
            Some(PlannedWeight {
                weight: graph.value(weight).name.clone(),
                used_by: own.results.iter().map(|result| graph.value(*result).name.clone()).collect(),
                elements: graph.weight(weight)?.elements(),
                form,
            })
        });
        Self { weights: weights.collect() }
    }
}

impl Uses {
    /// Whether the weight may be quantized. Positions and types of tokens are small tables, and stay as they are.
    fn is_planned(&self, is_table_of_tokens: bool) -> bool {
        self.layers > 0 || is_table_of_tokens
    }

    /// Whether an exception names the weight or a result, or an origin of these.
    pub(in super::super) fn matches(&self, graph: &Graph, weight: ValueId, named: &Named) -> bool {
        named.any(self.results.iter().chain([&weight]).map(|value| graph.value(*value)))
    }

    /// Whether an exception is of the weight, which is that of the head, a table that scores no tokens, or another one.
    fn is(&self, graph: &Graph, weight: ValueId, named: &Named, is_head: bool, is_table: bool) -> bool {
        match named {
            Named::Head => is_head,
            Named::Table => is_table,
            Named::Names(_) => self.matches(graph, weight, named),
        }
    }
}

/// The weights of the layers that score tokens.
fn heads(graph: &Graph) -> Vec<ValueId> {
    Found::of(graph).heads.iter().map(|head| head.linear.weight).collect()
}

/// The stacked matrices of experts that can become codes, with the features that a matrix takes and gives. What they are
/// multiplied with is not measured.
pub(super) fn expert_weights(graph: &Graph, experts: &Experts) -> Vec<(ValueId, [usize; 2])> {
    let taken = [Some(experts.gate), experts.up, Some(experts.down)].into_iter().flatten();
    let features = |value: ValueId| {
        let weight = graph.weight(value).filter(|weight| weight.dtype() == DType::F32)?;
        let plain = weight.as_dequantized().is_none() && reshaped(weight).is_none();
        match weight.shape() {
            &[_, out, inner] if plain => Some((value, [inner, out])),
            _ => None,
        }
    };
    taken.filter_map(features).collect()
}

/// The largest block that divides a row, up to the one that is asked for.
fn whole_block(block: Option<usize>, columns: usize) -> Option<usize> {
    let largest = block.unwrap_or(usize::MAX);
    let blocks = [256, 128, 64, 32, LEAST_BLOCK];
    blocks.into_iter().find(|block| *block <= largest && columns.is_multiple_of(*block))
}

/// The matrices that layers and lookups take, in the order of the graph.
pub(in super::super) fn uses(graph: &Graph) -> (Vec<ValueId>, HashMap<ValueId, Uses>) {
    let mut order = Vec::new();
    let mut uses: HashMap<ValueId, Uses> = HashMap::new();
    for (_, node) in graph.nodes() {
        if let Op::Experts(experts) = &node.op {
            for (weight, features) in expert_weights(graph, experts) {
                let own = uses.entry(weight).or_insert_with(|| {
                    order.push(weight);
                    Uses::default()
                });
                own.results.push(node.outputs[0]);
                (own.layers, own.features) = (own.layers + 1, Some(features));
            }
            continue;
        }
        let (weight, features) = match &node.op {
            Op::Linear(_) => match layer(graph, node) {
                Some((linear, features)) => (linear.weight, Some((linear.x, features))),
                None => continue,
            },
            Op::Embedding(Embedding { weight, .. }) | Op::Gather(Gather { x: weight, axis: 0, .. }) => {
                let matrix = graph.weight(*weight).filter(|w| w.shape().len() == 2 && w.dtype() == DType::F32);
                match matrix.filter(|w| w.as_dequantized().is_none()) {
                    Some(_) => (*weight, None),
                    None => continue,
                }
            }
            _ => continue,
        };
        let own = uses.entry(weight).or_insert_with(|| {
            order.push(weight);
            Uses::default()
        });
        own.results.push(node.outputs[0]);
        match features {
            Some((x, features)) => {
                (own.layers, own.features) = (own.layers + 1, Some(features));
                if !own.inputs.contains(&x) {
                    own.inputs.push(x);
                }
            }
            None => own.lookups += 1,
        }
    }
    (order, uses)
}

fn form(
    graph: &Graph,
    weight: ValueId,
    uses: &Uses,
    settings: &WeightSettings,
    is_head: bool,
    looks_up: bool,
) -> WeightForm {
    let float = |reason: String| WeightForm::Float { reason };
    let exception = settings.keep.last(|named| uses.is(graph, weight, named, is_head, uses.layers == 0));
    if let Some(exception) = exception.filter(|exception| exception.ty.is_float()) {
        return float(exception.reason.clone());
    }
    if let Some(reason) = settings.not_finite.get(&graph.value(weight).name) {
        return float(reason.clone());
    }
    if let Some(least) = uses.features.iter().flatten().find(|features| **features < MIN_FEATURES) {
        return float(format!("a layer of {least} features is too small"));
    }
    if uses.lookups > 0 && !looks_up {
        return float("the target has no operator that looks up rows of codes".to_owned());
    }
    if uses.lookups > 0 && !settings.table_blocks {
        return WeightForm::Rows { codes: DType::I8, integers: false };
    }
    let (bits, reason) = match exception {
        Some(exception) => (Bits::of(exception.ty), Some(exception.reason.clone())),
        None if is_head || uses.layers == 0 => (Bits::Eight, None),
        None => (settings.bits, None),
    };
    // Data says nothing of a table, and one choice of codes does not serve several inputs.
    let method = match settings.method {
        method if method.takes_data() && (uses.inputs.len() != 1 || uses.lookups > 0) => WeightMethod::Mse,
        method => method,
    };
    // Blocks are along the inputs of a layer, which are the rows of a weight that is stored as [in, out].
    let columns = match uses.features {
        Some([inputs, _]) if uses.lookups == 0 => inputs,
        _ => graph.weight(weight).and_then(|weight| weight.shape().last().copied()).unwrap_or(0),
    };
    let settings = match uses.lookups {
        0 => settings,
        // Rows are looked up as whole blocks.
        _ => match whole_block(settings.block, columns) {
            Some(block) => &WeightSettings { block: Some(block), ..settings.clone() },
            None => return float(format!("rows of {columns} are no whole blocks of {LEAST_BLOCK}")),
        },
    };
    settings.form(bits, columns, method, reason)
}
