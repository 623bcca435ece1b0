//! Operators of ONNX that the IR has no counterpart of, as ONNX defines them (onnx/docs/Operators.md). The
//! shapes of results come from the tensors.

mod arith;
mod attention;
mod blocks;
mod contrib;
mod control;
mod convolution;
mod create;
mod detection;
mod einsum;
mod grid;
mod grouped;
mod indexed;
mod loss;
mod movement;
mod norm;
mod pool;
mod quantize;
mod quantized;
mod recurrences;
mod recurrent;
mod reduce;
mod resize;
mod signal;
mod stack;
mod state;
mod unary;
mod unique;

use planish_ir::ops::{Foreign, Setting};
use planish_ir::{DType, Dim, Op, TensorType, Type, ValueId};

use super::{Call, Context, Kernel};
use crate::element::{Element, Float, Int, with_type};
use crate::error::Failure;
use crate::interpreter::run_inner;
use crate::{Data, Reader, Tensor};

/// The results of an operator.
///
/// # Errors
/// When there is no kernel for it, or its operands are not what it takes.
pub(super) fn run<'a>(op: &Foreign, operand: &'a dyn Fn(ValueId) -> &'a Tensor, context: Context<'_>) -> Results {
    let operands = op.inputs.iter().map(|v| v.map(operand)).collect();
    let captured = op.captured.iter().map(|v| operand(*v)).collect();
    let mut results = compute(&Node { op, operands, captured, context })?.into_iter();
    let kept = op.results.0.iter().map(|wanted| (wanted, results.next()));
    let kept = kept.filter_map(|(wanted, result)| Some((wanted.as_ref()?, result)));
    kept.map(|(ty, result)| {
        let result = result.ok_or("it has fewer results")?;
        let found = result.ty();
        if is_of(&found, ty) { Ok(result) } else { Err(format!("a result is {found}, expected {ty}").into()) }
    })
    .collect()
}

/// What the types of its results are is in the node: see [`run`].
impl Kernel for Foreign {
    fn run(&self, _: &Call<'_>) -> Result<Vec<Data>, String> {
        Err("it passes through".to_owned())
    }
}

/// Whether a tensor is of a type, as far as that says.
fn is_of(found: &TensorType, ty: &Type) -> bool {
    let differ = |(a, b): (&Dim, &Dim)| a.as_constant().is_some_and(|a| Some(a) != b.as_constant());
    let same = |dtype: DType| Data::of(dtype) == Some(found.dtype);
    match ty {
        Type::Tensor(ty) => {
            same(ty.dtype) && ty.shape.rank() == found.shape.rank() && !ty.shape.iter().zip(&*found.shape).any(differ)
        }
        Type::Unranked(dtype) => same(*dtype),
        Type::Unknown => true,
        Type::Sequence(_) | Type::Optional(_) | Type::Map(..) => false,
    }
}

fn compute(node: &Node<'_>) -> Results {
    if node.op.is_standard() {
        let groups = [
            unary::run,
            arith::run,
            create::run,
            movement::run,
            indexed::run,
            reduce::run,
            norm::run,
            loss::run,
            convolution::run,
            pool::run,
            resize::run,
            quantize::run,
            attention::run,
            state::run,
            control::run,
            einsum::run,
            recurrent::run,
            unique::run,
            detection::run,
            grid::run,
            signal::run,
        ];
        for group in groups {
            if let Some(results) = group(node)? {
                return Ok(results);
            }
        }
    }
    if node.op.domain.0 == contrib::DOMAIN
        && let Some(results) = contrib::run(node)?
    {
        return Ok(results);
    }
    match node.context.reader {
        Some(reader) if !node.context.is_read_again => read_again(node, reader),
        _ => Err(not_computed(node)),
    }
}

/// There is no kernel for the operator.
fn not_computed(node: &Node<'_>) -> Failure {
    let domain = &node.op.domain.0;
    Failure::Unsupported(format!("the reference interpreter does not compute this operator of {domain}"))
}

/// There is no kernel for a setting of the operator.
fn not_known(name: &str, value: &str) -> Failure {
    Failure::Unsupported(format!("its {name} `{value}` is not known"))
}

/// The results of an operator that others compute together, now that the types of its operands are known.
fn read_again(node: &Node<'_>, reader: &dyn Reader) -> Results {
    let graph = reader.operator(node.op, &node.operands)?;
    let is_same = |op: &Op| matches!(op, Op::Foreign(f) if f.op == node.op.op && f.domain == node.op.domain);
    if graph.nodes().any(|(_, other)| is_same(&other.op)) {
        return Err(not_computed(node));
    }
    let number = |id: &ValueId| graph.value(*id).name.strip_prefix('i')?.parse::<usize>().ok();
    let inputs = graph.inputs().iter().map(|id| node.optional(number(id)?));
    let inputs: Vec<&Tensor> = inputs.collect::<Option<_>>().ok_or("it was read again with other operands")?;
    let mut found = run_inner(&graph, &inputs, Context { is_read_again: true, ..node.context })
        .map_err(|e| Failure::inside(&e, ""))?
        .into_iter();
    // The graph has no results that are left out; what stands for them is not looked at.
    let all = node.op.results.0.iter().map(|wanted| match wanted {
        Some(_) => found.next().ok_or("it has fewer results"),
        None => Tensor::zeros(DType::Bool, vec![0]).ok_or("nothing stands for a result that is left out"),
    });
    Ok(all.collect::<Result<_, _>>()?)
}

/// The results of a node.
type Results = Result<Vec<Tensor>, Failure>;

/// The results of a node, where a group of kernels has one for it.
type Maybe = Result<Option<Vec<Tensor>>, Failure>;

/// An operator with its operands.
struct Node<'a> {
    op: &'a Foreign,
    operands: Vec<Option<&'a Tensor>>,
    /// The values around it that its graphs use.
    captured: Vec<&'a Tensor>,
    context: Context<'a>,
}

impl<'a> Node<'a> {
    fn name(&self) -> &'a str {
        &self.op.op.0
    }

    /// An operand that may be left out.
    fn optional(&self, index: usize) -> Option<&'a Tensor> {
        self.operands.get(index).copied().flatten()
    }

    fn operand(&self, index: usize) -> Result<&'a Tensor, String> {
        self.optional(index).ok_or_else(|| format!("operand {index} is missing"))
    }

    /// The elements of an operand of integers, where it is given.
    fn integers(&self, index: usize) -> Result<Option<Vec<i64>>, String> {
        let Some(tensor) = self.optional(index) else { return Ok(None) };
        let narrow = |v: i128| i64::try_from(v).map_err(|_| format!("operand {index} has the element {v}"));
        integers(tensor)?.into_iter().map(narrow).collect::<Result<_, _>>().map(Some)
    }

    /// Integers that are an attribute or, in later opsets, an operand.
    fn parameter(&self, name: &str, index: usize) -> Result<Option<Vec<i64>>, String> {
        match self.ints(name) {
            Some(given) => Ok(Some(given)),
            None => self.integers(index),
        }
    }

    fn int(&self, name: &str, default: i64) -> i64 {
        match self.op.setting(name) {
            Some(Setting::Int(value)) => *value,
            _ => default,
        }
    }

    fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.op.setting(name) {
            Some(Setting::Ints(values)) => Some(values.clone()),
            _ => None,
        }
    }

    fn float(&self, name: &str, default: f64) -> f64 {
        match self.op.setting(name) {
            Some(Setting::Float(value)) => value.0,
            _ => default,
        }
    }

    fn text(&self, name: &str, default: &'static str) -> String {
        match self.op.setting(name) {
            Some(Setting::Bytes(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => default.to_owned(),
        }
    }

    fn floats(&self, name: &str) -> Option<Vec<f64>> {
        match self.op.setting(name) {
            Some(Setting::Floats(values)) => Some(values.iter().map(|v| v.0).collect()),
            _ => None,
        }
    }

    fn strings(&self, name: &str) -> Option<Vec<String>> {
        match self.op.setting(name) {
            Some(Setting::Strings(texts)) => {
                Some(texts.iter().map(|t| String::from_utf8_lossy(t).into_owned()).collect())
            }
            _ => None,
        }
    }

    /// The number of elements of a shape, where memory holds them with what computes them.
    fn count(&self, shape: &[usize]) -> Result<usize, String> {
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let bytes = |each: usize| count.and_then(|n| (n as u64).checked_mul(each as u64));
        // What it computes between operands and result is not declared, and is of no smaller elements than the result.
        let dtype = self.op.results.0.iter().flatten().find_map(Type::dtype).unwrap_or(DType::F64);
        let described = || format!("{dtype}[{}]", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", "));
        self.context.memory.check(bytes(dtype.size()), || format!("a result of {}", described()))?;
        self.context.memory.check(bytes(ELEMENT_BYTES), || format!("computing a result of {}", described()))?;
        Ok(count.unwrap_or(0))
    }

    /// An attribute that names an axis.
    fn axis(&self, name: &str, default: i64, rank: usize) -> Result<usize, String> {
        axis(self.int(name, default), rank)
    }
}

/// What an element takes while it is computed: as much as the largest type that computations use.
const ELEMENT_BYTES: usize = 16;

/// An axis counted from either end.
fn axis(given: i64, rank: usize) -> Result<usize, String> {
    let size = i64::try_from(rank).unwrap_or(i64::MAX);
    let from_front = if given < 0 { given.saturating_add(size) } else { given };
    usize::try_from(from_front).ok().filter(|&a| a < rank).ok_or_else(|| format!("axis {given} of {rank} dimensions"))
}

/// Several axes, or all where none are given.
fn axes(given: Option<&[i64]>, rank: usize) -> Result<Vec<usize>, String> {
    match given {
        Some(given) => given.iter().map(|&a| axis(a, rank)).collect(),
        None => Ok((0..rank).collect()),
    }
}

/// The elements of a tensor of integers or booleans.
fn integers(tensor: &Tensor) -> Result<Vec<i128>, String> {
    with_type!(tensor.dtype(),
        float _T => Err(format!("an operand is {}, expected integers", tensor.ty())),
        int T => Ok(T::of(tensor)?.iter().map(|e| e.widen()).collect()),
        bool => Ok(bool::of(tensor)?.iter().map(|b| i128::from(*b)).collect()))
}

/// A tensor of integers or booleans.
fn of_integers(dtype: DType, shape: Vec<usize>, values: &[i128]) -> Result<Tensor, String> {
    let out_of_range = || format!("a result is out of range for {dtype}");
    let data: Data = with_type!(dtype,
        float T => T::data(values.iter().map(|v| T::from_int(*v)).collect()),
        int T => T::data(values.iter().map(|v| T::narrow(*v)).collect::<Option<_>>().ok_or_else(out_of_range)?),
        bool => bool::data(values.iter().map(|v| *v != 0).collect()));
    tensor(shape, data)
}

/// A tensor of numbers, each rounded once.
fn of_numbers(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, String> {
    Tensor::from_f64(dtype, shape.to_vec(), values).ok_or_else(|| wrong_number(shape, values.len()))
}

fn tensor(shape: Vec<usize>, data: Data) -> Result<Tensor, String> {
    let (sizes, count) = (shape.clone(), data.len());
    Tensor::new(shape, data).ok_or_else(|| wrong_number(&sizes, count))
}

fn wrong_number(shape: &[usize], count: usize) -> String {
    format!("{count} elements are not tensor of shape {shape:?}")
}

/// Sizes from integers, which an error calls `what`.
fn sizes(what: &str, given: &[i64]) -> Result<Vec<usize>, String> {
    let size = |&d: &i64| usize::try_from(d).map_err(|_| format!("its {what} are {given:?}, expected none below 0"));
    given.iter().map(size).collect()
}

/// A size to compute positions with that may lie outside of a tensor.
fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Every index of a shape, row-major.
fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let total: usize = shape.iter().product();
    (0..total).map(|position| {
        let mut rest = position;
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = rest % shape[axis];
            rest /= shape[axis];
        }
        index
    })
}

/// The position of an index in row-major order.
fn position(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (i, size)| at * size + i)
}

/// The elements at some positions, and `fill` where there is none.
fn pick(x: &Tensor, fill: Option<&Tensor>, shape: Vec<usize>, at: &[Option<usize>]) -> Result<Tensor, String> {
    with_type!(x.dtype(), any T => {
        let elements = T::of(x)?;
        let fill = match fill {
            Some(fill) => *T::of(fill)?.first().ok_or("what it fills with is empty")?,
            None => T::default(),
        };
        let one = |p: &Option<usize>| p.map_or(Some(fill), |p| elements.get(p).copied());
        let picked = at.iter().map(one).collect::<Option<Vec<T>>>();
        tensor(shape, T::data(picked.ok_or_else(|| format!("an index is out of range for {}", x.ty()))?))
    })
}

/// A shape cut at an axis: the number of elements before it, along it, and after it.
fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

/// One result, where there is one.
fn one(result: Tensor) -> Maybe {
    Ok(Some(vec![result]))
}
