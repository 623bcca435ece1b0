//! Operators on elements, and copies: one kernel, whose expression is a macro.

use std::borrow::Cow;

use planish_ir::ops::{Binary, BinaryKind, GeluForm};
use planish_ir::{DType, ValueId};

use super::build::Builder;
use super::view::coalesce;
use super::{Argument, View, too_large};
use crate::cuda::device::Grid;
use crate::cuda::source::{ELEMENTWISE, Source, c_type};

/// Threads of a block.
const THREADS: usize = 256;
/// The fewest elements of a thread, whatever their size.
const ELEMENTS: usize = 4;
/// Bytes of an access.
const ACCESS: usize = 16;
/// The most blocks along y.
const ROWS: usize = 65_535;
/// The most blocks along x: more work is done by the same blocks.
const BLOCKS: usize = ROWS * 16;
/// The most axes that kernels take.
const AXES: usize = 8;

/// The names of operands in macros.
const OPERANDS: [&str; 3] = ["A", "B", "C"];

/// GELU as a function of kernels.
pub(super) fn gelu(form: GeluForm) -> &'static str {
    match form {
        GeluForm::Erf => "gelu_erf(x)",
        GeluForm::Tanh => "gelu_tanh(x)",
    }
}

impl Builder<'_> {
    pub(super) fn binary(&mut self, result: ValueId, op: &Binary) -> Result<(), String> {
        let expression = match op.kind {
            BinaryKind::Add => "x + y",
            BinaryKind::Sub => "x - y",
            BinaryKind::Mul => "x * y",
            BinaryKind::Div => "divide(x, y)",
            BinaryKind::Pow => "power(x, y)",
            BinaryKind::Min => "minimum(x, y)",
            BinaryKind::Max => "maximum(x, y)",
            BinaryKind::Equal => "x == y",
            BinaryKind::Less => "x < y",
            BinaryKind::LessOrEqual => "x <= y",
            BinaryKind::Greater => "x > y",
            BinaryKind::GreaterOrEqual => "x >= y",
            BinaryKind::And => "x && y",
            BinaryKind::Or => "x || y",
        };
        self.elementwise(result, expression, &[op.a, op.b])
    }

    /// A result that is an expression of up to three operands, which broadcast.
    pub(super) fn elementwise(
        &mut self,
        result: ValueId,
        expression: &'static str,
        of: &[ValueId],
    ) -> Result<(), String> {
        let operands = of.iter().map(|value| self.view(*value)).collect::<Result<Vec<_>, _>>()?;
        let result = self.result(result)?;
        self.pointwise(&result, expression, &operands.iter().collect::<Vec<_>>())
    }

    /// Copies elements, between any strides.
    pub(super) fn copy(&mut self, to: &View, from: &View) -> Result<(), String> {
        if to.is_contiguous() && from.is_contiguous() {
            self.copy_bytes(to.place, from.place, from.bytes());
            return Ok(());
        }
        self.pointwise(to, "x", &[from])
    }

    /// Computes an expression of `x`, `y` and `z`, the elements of operands that broadcast to the result.
    pub(super) fn pointwise(
        &mut self,
        to: &View,
        expression: impl Into<Cow<'static, str>>,
        operands: &[&View],
    ) -> Result<(), String> {
        let expression = expression.into();
        let expanded: Vec<View> = operands.iter().map(|operand| operand.expand(&to.shape)).collect();
        let count = to.elements();
        if count == 0 {
            return Ok(());
        }
        let mut tensors: Vec<&[usize]> = vec![&to.strides];
        tensors.extend(expanded.iter().map(|operand| operand.strides.as_slice()));
        let (mut sizes, mut strides) = coalesce(&to.shape, &tensors);
        if sizes.is_empty() {
            sizes.push(1);
            strides.iter_mut().for_each(|all| all.push(1));
        }
        let places = std::iter::once(to.place).chain(operands.iter().map(|operand| operand.place));
        let mut pointers: Vec<Argument> = places.map(Argument::At).collect();
        pointers.resize(1 + OPERANDS.len(), Argument::Null);
        let source = |kernel| typed(Source::new(ELEMENTWISE, kernel), to, operands, expression.clone());

        let inner = |all: &[usize]| all.last().copied().unwrap_or(0);
        // Kernels access the largest elements that are side by side 16 bytes at a time.
        let side_by_side = std::iter::once(to).chain(operands.iter().copied()).zip(&strides);
        let largest = side_by_side.filter(|(_, all)| inner(all) != 0).map(|(view, _)| view.dtype.size()).max();
        let vector = ACCESS / largest.unwrap_or(ACCESS);
        let each = vector.max(ELEMENTS);
        let simple = inner(&strides[0]) == 1 && strides.iter().all(|all| inner(all) <= 1);
        match sizes.as_slice() {
            [n] if simple => {
                let mut source = source("elementwise_flat")?;
                for (name, all) in OPERANDS.iter().zip(&strides[1..]) {
                    if inner(all) == 0 {
                        source = source.with(scalar(name), true);
                    }
                }
                pointers.push(Argument::long(*n));
                let blocks = n.div_ceil(THREADS * each).min(BLOCKS);
                self.launch(source, grid([blocks, 1, 1])?, pointers);
            }
            [rows, columns] if simple => {
                let mut source = source("elementwise_rows")?;
                for (name, all) in OPERANDS.iter().zip(&strides[1..]) {
                    if inner(all) == 0 {
                        source = source.with(column(name), true);
                    }
                }
                pointers.extend([Argument::long(*rows), Argument::int(*columns)?]);
                let steps = strides.iter().map(|all| all[0]).chain(std::iter::repeat(0)).take(1 + OPERANDS.len());
                pointers.extend(steps.map(Argument::long));
                let blocks = (rows * columns.div_ceil(each)).div_ceil(THREADS).min(BLOCKS);
                self.launch(source, grid([blocks, 1, 1])?, pointers);
            }
            _ => {
                let source = source("elementwise_strided")?;
                pointers.extend([Argument::long(count), strided(&sizes, &strides)?]);
                // As the kernel has it, but for the addresses.
                let aligned = |all: &Vec<usize>| {
                    all.split_last().is_some_and(|(inner, rest)| *inner == 1 && rest.iter().all(|s| s % vector == 0))
                };
                let vectors = inner(&sizes).is_multiple_of(vector) && strides.iter().all(aligned);
                let each = if vectors { vector } else { 1 };
                self.launch(source, grid([count.div_ceil(THREADS * each).min(BLOCKS), 1, 1])?, pointers);
            }
        }
        Ok(())
    }
}

fn scalar(operand: &str) -> &'static str {
    match operand {
        "A" => "A_SCALAR",
        "B" => "B_SCALAR",
        _ => "C_SCALAR",
    }
}

fn column(operand: &str) -> &'static str {
    match operand {
        "A" => "A_COLUMN",
        "B" => "B_COLUMN",
        _ => "C_COLUMN",
    }
}

/// The macros for the element types and the expression.
fn typed(source: Source, to: &View, operands: &[&View], expression: Cow<'static, str>) -> Result<Source, String> {
    let mut source = source.with("ARITY", operands.len()).with("R", named(to.dtype)?);
    for (name, operand) in OPERANDS.into_iter().zip(operands) {
        source = source.with(name, named(operand.dtype)?);
    }
    Ok(source.with("EXPR", expression))
}

/// The name of an element type in kernels.
pub(super) fn named(dtype: DType) -> Result<&'static str, String> {
    c_type(dtype).ok_or_else(|| format!("the CUDA runtime has no kernels for elements of type {dtype}"))
}

/// Blocks of 256 threads.
pub(super) fn grid(blocks: [usize; 3]) -> Result<Grid, String> {
    grid_of(blocks, THREADS)
}

/// Blocks of so many threads, without dynamic shared memory.
pub(super) fn grid_of(blocks: [usize; 3], threads: usize) -> Result<Grid, String> {
    let [x, y, z] = blocks;
    if x > i32::MAX as usize || y > ROWS || z > ROWS {
        return Err(format!("a grid of {x} x {y} x {z} blocks is larger than a GPU takes"));
    }
    let fit = |n: usize| u32::try_from(n).map_err(|_| too_large(n));
    Ok(Grid { blocks: [fit(blocks[0])?, fit(blocks[1])?, fit(blocks[2])?], threads: fit(threads)?, shared: 0 })
}

/// A thread for each element.
pub(super) fn elements(count: usize) -> Result<Grid, String> {
    grid([count.div_ceil(THREADS).min(BLOCKS), 1, 1])
}

/// The structure `Strided` of kernels: up to four tensors over one index space.
pub(super) fn strided(sizes: &[usize], strides: &[Vec<usize>]) -> Result<Argument, String> {
    if sizes.len() > AXES {
        return Err(format!("{} axes that cannot be merged are more than the {AXES} of the kernels", sizes.len()));
    }
    let padded = |values: &[usize], fill: u64| {
        let values: Vec<u64> = values.iter().map(|v| *v as u64).collect();
        values.into_iter().chain(std::iter::repeat(fill)).take(AXES).collect::<Vec<_>>()
    };
    let mut words = vec![sizes.len() as u64];
    words.extend(padded(sizes, 1));
    for tensor in 0..4 {
        words.extend(padded(strides.get(tensor).map_or(&[], Vec::as_slice), 0));
    }
    Ok(Argument::Value(words))
}

#[cfg(test)]
mod tests {
    use planish_ir::{Bindings, text};

    use crate::cuda::program::{Caches, Program, Step, Style, Target};

    /// The blocks of the launches of a graph.
    fn blocks(statements: &str) -> Vec<u32> {
        let graph = text::parse(&format!("graph \"g\" {{\n{statements}\n}}"), &text::no_files).unwrap();
        let target = Target::usual(Style::Fused);
        let program = Program::new(&graph, &Bindings::default(), target, &Caches::default()).unwrap();
        let launches = program.steps.iter().filter_map(|step| match step {
            Step::Launch(launch) => Some(launch.grid.blocks[0]),
            _ => None,
        });
        launches.collect()
    }

    #[test]
    fn each_thread_has_an_access_of_sixteen_bytes() {
        for (dtype, each) in [("f32", 4), ("f16", 8), ("i64", 4), ("bool", 16)] {
            let operator = if dtype == "bool" { "and" } else { "add" };
            let flat = format!(
                "input %x: {dtype}[64, 768]
                 %y = {operator}(%x, %x) : {dtype}[64, 768]
                 output y = %y"
            );
            assert_eq!(blocks(&flat), [64 * 768 / 256 / each], "{dtype}");
        }
        let rows = "
            input %x: f16[64, 768]
            input %b: f16[768]
            %y = add(%x, %b) : f16[64, 768]
            output y = %y";
        assert_eq!(blocks(rows), [64 * 768 / 256 / 8]);
        let strided = "
            input %x: f16[4, 16, 12, 64]
            %t = transpose(%x) {perm = [0, 2, 1, 3]} : f16[4, 12, 16, 64]
            output y = %t";
        assert_eq!(blocks(strided), [4 * 16 * 12 * 64 / 256 / 8]);
        let columns = "
            input %x: f16[4, 16, 12, 64]
            %t = transpose(%x) {perm = [0, 3, 2, 1]} : f16[4, 64, 12, 16]
            output y = %t";
        assert_eq!(blocks(columns), [4 * 16 * 12 * 64 / 256]);
    }
}
