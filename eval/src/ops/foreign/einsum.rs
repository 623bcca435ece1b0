//! Sums of products over named dimensions: operands are contracted one after another, each time as a batch of
//! products of matrices. Floats are rounded once.

use planish_ir::DType;

use super::{Maybe, Node, integers, of_integers, of_numbers, one};
use crate::Tensor;
use crate::product::{Matrix, multiply};
use crate::strided::{row_major, walk};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Einsum" => one(einsum(node)?),
        _ => Ok(None),
    }
}

fn einsum(node: &Node<'_>) -> Result<Tensor, String> {
    let operands = (0..node.operands.len()).map(|i| node.operand(i)).collect::<Result<Vec<_>, _>>()?;
    let dtype = operands.first().ok_or("it has no operand")?.dtype();
    if let Some(other) = operands.iter().find(|t| t.dtype() != dtype) {
        return Err(format!("its operands are of {dtype} and {}", other.dtype()));
    }
    let shapes: Vec<&[usize]> = operands.iter().map(|t| t.shape()).collect();
    let equation = Equation::parse(&node.text("equation", ""), &shapes)?;
    if dtype == DType::Bool {
        return Err("is not defined for bool".to_owned());
    }
    if dtype.is_float() {
        let values = operands.iter().map(|t| t.to_f64()).collect();
        return of_numbers(dtype, &equation.shape(), &equation.sum::<f64>(node, values)?);
    }
    let values = operands.iter().map(|t| integers(t)).collect::<Result<_, _>>()?;
    of_integers(dtype, equation.shape(), &equation.sum::<i128>(node, values)?)
}

/// A dimension by the number of its name.
type Label = usize;

/// What an equation says of operands of some shapes.
struct Equation {
    /// The size of each label.
    sizes: Vec<usize>,
    /// The labels of each operand, each once, with the stride along it.
    terms: Vec<Vec<(Label, usize)>>,
    /// The labels of the result.
    result: Vec<Label>,
}

/// The labels of a term: those before the dimensions without names, how many these are, and those after.
struct Term<'a> {
    before: &'a str,
    after: Option<&'a str>,
}

impl<'a> Term<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let (before, after) = text.split_once("...").map_or((text, None), |(before, after)| (before, Some(after)));
        let letters = before.chars().chain(after.unwrap_or_default().chars());
        match letters.into_iter().find(|c| !c.is_ascii_alphabetic()) {
            Some(other) => Err(format!("its equation has `{other}` in `{text}`, expected letters and one `...`")),
            None => Ok(Self { before, after }),
        }
    }

    fn letters(&self) -> usize {
        self.before.len() + self.after.map_or(0, str::len)
    }
}

impl Equation {
    fn parse(text: &str, shapes: &[&[usize]]) -> Result<Self, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (terms, result) = text.split_once("->").map_or((text.as_str(), None), |(terms, r)| (terms, Some(r)));
        let terms = terms.split(',').map(Term::parse).collect::<Result<Vec<_>, _>>()?;
        if terms.len() != shapes.len() {
            return Err(format!("its equation `{text}` is of {} operands, and it has {}", terms.len(), shapes.len()));
        }
        // Dimensions without names are the first labels; they are aligned at the last of them.
        let mut unnamed = 0;
        for (term, shape) in terms.iter().zip(shapes) {
            let more = shape.len().checked_sub(term.letters());
            match more.filter(|&more| more == 0 || term.after.is_some()) {
                Some(more) => unnamed = unnamed.max(more),
                None => return Err(format!("its equation `{text}` does not fit an operand of shape {shape:?}")),
            }
        }
        let mut equation = Self { sizes: vec![1; unnamed], terms: Vec::new(), result: Vec::new() };
        let mut names: Vec<(char, usize)> = Vec::new();
        for (term, shape) in terms.iter().zip(shapes) {
            let mut labels = Vec::with_capacity(shape.len());
            let mut named = |letters: &str, labels: &mut Vec<Label>| {
                for letter in letters.chars() {
                    let at = names.iter().position(|(name, _)| *name == letter);
                    let at = at.unwrap_or_else(|| {
                        names.push((letter, 0));
                        equation.sizes.push(1);
                        names.len() - 1
                    });
                    names[at].1 += 1;
                    labels.push(unnamed + at);
                }
            };
            named(term.before, &mut labels);
            labels.extend(unnamed - (shape.len() - term.letters())..unnamed);
            named(term.after.unwrap_or_default(), &mut labels);
            equation.term(&labels, shape)?;
        }
        let find = |letter: char| match names.iter().position(|(name, _)| *name == letter) {
            Some(at) => Ok(unnamed + at),
            None => Err(format!("its equation `{text}` has no operand with `{letter}`")),
        };
        match result {
            Some(result) => {
                let term = Term::parse(result)?;
                for letter in term.before.chars() {
                    equation.result.push(find(letter)?);
                }
                if let Some(after) = term.after {
                    equation.result.extend(0..unnamed);
                    for letter in after.chars() {
                        equation.result.push(find(letter)?);
                    }
                }
            }
            None => {
                let mut once: Vec<char> = names.iter().filter(|(_, n)| *n == 1).map(|(name, _)| *name).collect();
                once.sort_unstable();
                equation.result.extend(0..unnamed);
                for letter in once {
                    equation.result.push(find(letter)?);
                }
            }
        }
        let repeats = |(i, label): (usize, &Label)| equation.result[..i].contains(label);
        match equation.result.iter().enumerate().any(repeats) {
            true => Err(format!("its equation `{text}` has a dimension of the result twice")),
            false => Ok(equation),
        }
    }

    /// Adds an operand; a dimension of size 1 repeats where its name has another size.
    fn term(&mut self, labels: &[Label], shape: &[usize]) -> Result<(), String> {
        let mut term: Vec<(Label, usize)> = Vec::new();
        for ((&label, &size), stride) in labels.iter().zip(shape).zip(row_major(shape)) {
            match self.sizes[label] {
                1 => self.sizes[label] = size,
                known if known != size && size != 1 => {
                    return Err(format!("a dimension of its equation is of {known} elements and of {size}"));
                }
                _ => {}
            }
            let stride = if size == 1 { 0 } else { stride };
            match term.iter_mut().find(|(l, _)| *l == label) {
                Some((_, sum)) => *sum += stride,
                None => term.push((label, stride)),
            }
        }
        self.terms.push(term);
        Ok(())
    }

    fn sizes(&self, labels: &[Label]) -> Vec<usize> {
        labels.iter().map(|&label| self.sizes[label]).collect()
    }

    fn shape(&self) -> Vec<usize> {
        self.sizes(&self.result)
    }

    /// The elements of the result.
    fn sum<T: Number>(&self, node: &Node<'_>, values: Vec<Vec<T>>) -> Result<Vec<T>, String> {
        let mut operands = self.terms.iter().cloned().zip(values);
        let (term, elements) = operands.next().ok_or("it has no operand")?;
        let mut whole = Factor { term, elements };
        for (index, (term, elements)) in operands.enumerate() {
            let later = self.terms[index + 2..].iter().flatten().map(|(label, _)| *label);
            let kept: Vec<Label> = later.chain(self.result.iter().copied()).collect();
            whole = self.contract(node, whole, Factor { term, elements }, &kept)?;
        }
        let summed = whole.labels().filter(|label| !self.result.contains(label)).collect::<Vec<_>>();
        let matrix = self.arrange(node, &whole, &[&self.result, &summed])?;
        let each = self.sizes(&summed).iter().product::<usize>();
        if each == 1 {
            return Ok(matrix);
        }
        let [rows, n] = [self.shape().iter().product(), 1];
        T::product(&matrix, &vec![T::ONE; each], [rows, each, n]).ok_or_else(out_of_range)
    }

    /// The sums of products of two factors over what only they have and is not kept.
    fn contract<T: Number>(
        &self,
        node: &Node<'_>,
        a: Factor<T>,
        b: Factor<T>,
        kept: &[Label],
    ) -> Result<Factor<T>, String> {
        let a = self.reduced(node, a, &b, kept)?;
        let b = self.reduced(node, b, &a, kept)?;
        let shared = a.labels().filter(|label| b.has(*label));
        let (batch, summed): (Vec<Label>, Vec<Label>) = shared.partition(|label| kept.contains(label));
        let left: Vec<Label> = a.labels().filter(|label| !b.has(*label)).collect();
        let right: Vec<Label> = b.labels().filter(|label| !a.has(*label)).collect();
        let count = |labels: &[Label]| self.sizes(labels).iter().product::<usize>();
        let [batches, m, k, n] = [count(&batch), count(&left), count(&summed), count(&right)];
        let labels = [&batch[..], &left, &right].concat();
        let total = node.count(&self.sizes(&labels))?;
        let x = self.arrange(node, &a, &[&batch, &left, &summed])?;
        let y = self.arrange(node, &b, &[&batch, &summed, &right])?;
        let mut elements = Vec::with_capacity(total);
        for i in 0..batches {
            let (x, y) = (&x[i * m * k..(i + 1) * m * k], &y[i * k * n..(i + 1) * k * n]);
            elements.extend(T::product(x, y, [m, k, n]).ok_or_else(out_of_range)?);
        }
        let strides = row_major(&self.sizes(&labels));
        Ok(Factor { term: labels.into_iter().zip(strides).collect(), elements })
    }

    /// A factor summed over what neither the other one has nor is kept.
    fn reduced<T: Number>(
        &self,
        node: &Node<'_>,
        factor: Factor<T>,
        other: &Factor<T>,
        kept: &[Label],
    ) -> Result<Factor<T>, String> {
        let stays = |label: &Label| other.has(*label) || kept.contains(label);
        let (stays, summed): (Vec<Label>, Vec<Label>) = factor.labels().partition(stays);
        if summed.is_empty() {
            return Ok(factor);
        }
        let matrix = self.arrange(node, &factor, &[&stays, &summed])?;
        let shape = self.sizes(&stays);
        let (rows, each) = (shape.iter().product(), self.sizes(&summed).iter().product());
        let elements = T::product(&matrix, &vec![T::ONE; each], [rows, each, 1]).ok_or_else(out_of_range)?;
        Ok(Factor { term: stays.into_iter().zip(row_major(&shape)).collect(), elements })
    }

    /// The elements of a factor, row-major over these labels.
    fn arrange<T: Number>(&self, node: &Node<'_>, factor: &Factor<T>, order: &[&[Label]]) -> Result<Vec<T>, String> {
        let labels = order.concat();
        let shape = self.sizes(&labels);
        let stride = |label: &Label| factor.term.iter().find(|(l, _)| l == label).map_or(0, |(_, stride)| *stride);
        let strides: Vec<usize> = labels.iter().map(stride).collect();
        let mut out = Vec::with_capacity(node.count(&shape)?);
        walk(&shape, [&strides], |run| {
            out.extend(run.positions().map(|[at]| factor.elements[at]));
            Ok::<_, String>(())
        })?;
        Ok(out)
    }
}

fn out_of_range() -> String {
    "a sum is out of range".to_owned()
}

/// An operand, or a product of several: its labels with the strides along them.
struct Factor<T> {
    term: Vec<(Label, usize)>,
    elements: Vec<T>,
}

impl<T> Factor<T> {
    fn labels(&self) -> impl Iterator<Item = Label> + '_ {
        self.term.iter().map(|(label, _)| *label)
    }

    fn has(&self, label: Label) -> bool {
        self.labels().any(|own| own == label)
    }
}

/// What is summed.
trait Number: Copy {
    const ONE: Self;
    /// The product of matrices [m, k] and [k, n]; `None` where a sum is out of range.
    fn product(a: &[Self], b: &[Self], size: [usize; 3]) -> Option<Vec<Self>>;
}

impl Number for f64 {
    const ONE: Self = 1.0;
    fn product(a: &[Self], b: &[Self], [m, k, n]: [usize; 3]) -> Option<Vec<Self>> {
        Some(multiply(Matrix::new(a, m, k), Matrix::new(b, k, n)))
    }
}

impl Number for i128 {
    const ONE: Self = 1;
    fn product(a: &[Self], b: &[Self], [m, k, n]: [usize; 3]) -> Option<Vec<Self>> {
        let mut out = Vec::with_capacity(m * n);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let add = |sum: i128, l: usize| sum.checked_add(a[i * k + l].checked_mul(b[l * n + j])?);
            out.push((0..k).try_fold(0, add)?);
        }
        Some(out)
    }
}
