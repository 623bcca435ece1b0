//! Weights with a scale for each block, from the operators that take their codes.

use planish_ir::ops::{Flag, Foreign, Gather, Linear};
use planish_ir::weight::{Channels, Packing, code_range};
use planish_ir::{DType, Graph, NodeId, Rewriter, ValueId, Weight};

use super::super::{Found, NoMatch, Rule};
use super::scheme::{input, int};
use super::{foreign, miss};

/// `MatMulNBits` with a weight.
pub(super) const PRODUCT: Rule = Rule { name: "quantized product", find: product };

fn product(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["MatMulNBits"])?.clone();
    let output = graph.node(node).outputs[0];
    let ([Some(x), Some(codes), Some(scales)], Some(shape)) =
        ([0, 1, 2].map(|at| input(&found, at)), sizes(&found, ["N", "K"]))
    else {
        return Err(NoMatch::Other);
    };
    if int(&found, "weight_prepacked").is_some_and(|packed| packed != 0) {
        return miss(format!("the weight `{}` has the layout of a device", graph.value(codes).name));
    }
    let layout = Layout::new(&found, shape)?;
    if let Some(groups) = input(&found, 4) {
        layout.groups_neighbours(graph, groups)?;
    }
    let weight = layout.weight(graph, [codes, scales], input(&found, 3))?;
    let weight = graph.weight_like(weight, codes);
    Ok(vec![graph.emit(Linear { x, weight, bias: input(&found, 5), transposed: Flag(false) }, output)?])
}

/// `GatherBlockQuantized` of rows of a weight.
pub(super) const ROWS: Rule = Rule { name: "quantized rows", find: rows };

fn rows(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["GatherBlockQuantized"])?.clone();
    let output = graph.node(node).outputs[0];
    let [Some(table), Some(indices), Some(scales)] = [0, 1, 2].map(|at| input(&found, at)) else {
        return Err(NoMatch::Other);
    };
    let codes = constant(graph, table)?;
    let axes = [int(&found, "gather_axis").unwrap_or(0), int(&found, "quantize_axis").unwrap_or(1)];
    let ([rows, stored], [0 | -2, 1 | -1]) = (codes.shape(), axes) else {
        return miss(format!("`{}` is no matrix whose rows are looked up and have blocks", graph.value(table).name));
    };
    let bits = if codes.dtype() == DType::U8 { size(&found, "bits", 4) } else { codes.dtype().bits() };
    let layout =
        Layout::new(&found, [*rows, stored.saturating_mul(codes.dtype().bits()).checked_div(bits).unwrap_or(0)])?;
    if !layout.columns.is_multiple_of(layout.block) {
        let (name, columns, block) = (&graph.value(table).name, layout.columns, layout.block);
        return miss(format!("the rows of `{name}` have {columns} columns, which are no whole blocks of {block}"));
    }
    let weight = match codes.dtype() {
        DType::U8 => layout.weight(graph, [table, scales], input(&found, 3))?,
        _ => dequantized(graph, [table, scales], input(&found, 3), Channels::Blocks { axis: 1, size: layout.block })?,
    };
    let x = graph.weight_like(weight, table);
    Ok(vec![graph.emit(Gather { x, indices, axis: 0 }, output)?])
}

/// The numbers that codes stand for in `DequantizeLinear` with a scale for each block; `None` where it has no blocks.
pub(super) fn numbers(graph: &Graph, found: &Foreign) -> Result<Option<Weight>, NoMatch> {
    let size = int(found, "block_size").and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
    let ([Some(codes), Some(scales)], Some(size)) = ([0, 1].map(|at| input(found, at)), size) else { return Ok(None) };
    let axis = int(found, "axis").unwrap_or(1);
    let rank = i64::try_from(graph.ty(codes).shape.rank()).unwrap_or(0);
    let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).unwrap_or(usize::MAX);
    dequantized(graph, [codes, scales], input(found, 2), Channels::Blocks { axis, size }).map(Some)
}

/// The numbers of codes whose type is theirs, with scales and zero points of the same shape.
fn dequantized(
    graph: &Graph,
    [codes, scales]: [ValueId; 2],
    zero: Option<ValueId>,
    channels: Channels,
) -> Result<Weight, NoMatch> {
    let zeros = zero.map(|zero| constant(graph, zero)).transpose()?;
    let weight = constant(graph, codes)?.dequantize(channels, &constant(graph, scales)?, zeros.as_ref());
    fitting(graph, weight, [codes, scales])
}

/// What codes and scales give, where they fit each other.
pub(super) fn fitting<T>(graph: &Graph, found: Option<T>, [codes, scales]: [ValueId; 2]) -> Result<T, NoMatch> {
    let named = |value: ValueId| format!("`{}`, {}", graph.value(value).name, graph.ty(value));
    match found {
        Some(found) => Ok(found),
        None => miss(format!("the codes {} do not fit the scales {}", named(codes), named(scales))),
    }
}

pub(super) fn constant(graph: &Graph, value: ValueId) -> Result<Weight, NoMatch> {
    match graph.weight(value) {
        Some(weight) => Ok(weight.clone()),
        None => miss(format!("`{}` is not a weight", graph.value(value).name)),
    }
}

/// Attributes that are sizes.
pub(super) fn sizes<const N: usize>(found: &Foreign, names: [&str; N]) -> Option<[usize; N]> {
    let sizes = names.map(|name| int(found, name).and_then(|size| usize::try_from(size).ok()));
    sizes.iter().all(Option::is_some).then(|| sizes.map(Option::unwrap_or_default))
}

/// An attribute that is a size; 0 where it is below.
fn size(found: &Foreign, name: &str, default: usize) -> usize {
    int(found, name).map_or(default, |size| usize::try_from(size).unwrap_or(0))
}

/// A matrix of codes in bytes: those of a row begin with a byte, and the first of a byte is in its lowest bits.
struct Layout {
    rows: usize,
    columns: usize,
    block: usize,
    bits: usize,
    /// The type of the codes.
    codes: DType,
}

impl Layout {
    fn new(found: &Foreign, [rows, columns]: [usize; 2]) -> Result<Self, NoMatch> {
        let (bits, block) = (size(found, "bits", 4), size(found, "block_size", 128));
        let codes = match bits {
            2 => DType::U2,
            4 => DType::U4,
            8 => DType::U8,
            _ => return miss(format!("codes have {bits} bits, and 2, 4 and 8 are known")),
        };
        if block == 0 || rows == 0 || columns == 0 {
            return miss(format!("{rows} rows of {columns} codes in blocks of {block} have no elements"));
        }
        Ok(Self { rows, columns, block, bits, codes })
    }

    fn blocks(&self) -> usize {
        self.columns.div_ceil(self.block)
    }

    /// The matrix. Without zero points the middle code stands for 0, and the codes of the signed type say the same.
    fn weight(&self, graph: &Graph, values: [ValueId; 2], zero: Option<ValueId>) -> Result<Weight, NoMatch> {
        let [packed, scales] = [constant(graph, values[0])?, constant(graph, values[1])?];
        let stored = self.blocks().checked_mul(self.block);
        let codes = stored.and_then(|stored| self.unpacked(&packed, stored, self.columns));
        let codes = fitting(graph, codes, values)?;
        let scales = fitting(graph, scales.reshape(&[self.rows, self.blocks()]), values)?;
        let (codes, zeros) = match zero {
            Some(zero) => (Some(codes), Some(self.zero_points(graph, zero)?)),
            None => (codes.flip_sign(), None),
        };
        let channels = Channels::Blocks { axis: 1, size: self.block };
        fitting(graph, codes.and_then(|codes| codes.dequantize(channels, &scales, zeros.as_ref())), values)
    }

    /// The first codes of each row of bytes, which has so many.
    fn unpacked(&self, packed: &Weight, stored: usize, columns: usize) -> Option<Weight> {
        let bytes = stored.checked_mul(self.bits)?.div_ceil(8);
        let fits = packed.dtype() == DType::U8 && self.rows.checked_mul(bytes) == Some(packed.elements());
        fits.then_some(())?;
        let shape = [self.rows, bytes * 8 / self.bits];
        let codes = match self.codes {
            DType::U8 => packed.reshape(&shape)?,
            _ => Weight::unpack(std::slice::from_ref(packed), Packing::Words, self.codes, &shape)?,
        };
        let columns: Vec<usize> = (0..columns).collect();
        codes.gather(1, &columns)
    }

    /// Zero points, which are packed as the codes are, or floats that are codes.
    fn zero_points(&self, graph: &Graph, zero: ValueId) -> Result<Weight, NoMatch> {
        let stored = constant(graph, zero)?;
        let zeros = match stored.dtype() {
            DType::U8 => self.unpacked(&stored, self.blocks(), self.blocks()),
            _ => {
                let (_, largest) = code_range(self.codes).unwrap_or_default();
                let is_code = |zero: &f64| zero.fract() == 0.0 && (0.0..=largest as f64).contains(zero);
                let Ok(true) = stored.read_numbers().map(|numbers| numbers.iter().all(is_code)) else {
                    return miss(format!("the zero points `{}` are numbers between codes", graph.value(zero).name));
                };
                stored.reshape(&[self.rows, self.blocks()]).and_then(|zeros| zeros.cast(self.codes))
            }
        };
        match zeros {
            Some(zeros) => Ok(zeros),
            None => {
                let (name, ty) = (&graph.value(zero).name, graph.ty(zero));
                miss(format!("the zero points `{name}` are {ty}, and {} rows have {}", self.rows, self.blocks()))
            }
        }
    }

    /// Refuses groups of inputs that are not the blocks of neighbours.
    fn groups_neighbours(&self, graph: &Graph, groups: ValueId) -> Result<(), NoMatch> {
        let numbers = constant(graph, groups)?.read_numbers();
        let of_blocks = |groups: &Vec<f64>| {
            groups.len() >= self.columns
                && groups.iter().enumerate().all(|(i, group)| *group == (i / self.block) as f64)
        };
        match numbers.is_ok_and(|groups| of_blocks(&groups)) {
            true => Ok(()),
            false => miss(format!("`{}` has other groups than blocks of neighbours", graph.value(groups).name)),
        }
    }
}
