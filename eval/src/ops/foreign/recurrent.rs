//! Recurrent layers: `RNN`, `GRU` and `LSTM`. All steps compute in `f64`; what is given out is rounded once.
//!
//! Where ONNX leaves it open, they do what ONNX Runtime does: `clip` bounds what the gates' functions get, and not
//! what the last one of an LSTM gets of the cell; the last state of a row without a step is zero.

use super::{Maybe, Node, integers, not_known, of_numbers};
use crate::Tensor;
use crate::error::Failure;
use crate::product::{Matrix, multiply};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    let kind = match node.name() {
        "RNN" => Kind::Rnn,
        "GRU" => Kind::Gru { linear_before_reset: node.int("linear_before_reset", 0) != 0 },
        "LSTM" => Kind::Lstm { input_forget: node.int("input_forget", 0) != 0 },
        _ => return Ok(None),
    };
    layer(node, kind).map(Some)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rnn,
    Gru { linear_before_reset: bool },
    Lstm { input_forget: bool },
}

impl Kind {
    /// The number of gates, whose weights are one below another.
    fn gates(self) -> usize {
        match self {
            Kind::Rnn => 1,
            Kind::Gru { .. } => 3,
            Kind::Lstm { .. } => 4,
        }
    }

    /// The activation functions of a direction, unless others are named.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Kind::Rnn => &["Tanh"],
            Kind::Gru { .. } => &["Sigmoid", "Tanh"],
            Kind::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// The sizes of a layer.
#[derive(Clone, Copy)]
struct Sizes {
    steps: usize,
    batch: usize,
    features: usize,
    hidden: usize,
    directions: usize,
    /// Whether the batch comes first: layout 1.
    batch_first: bool,
}

impl Sizes {
    fn of(node: &Node<'_>, kind: Kind) -> Result<Self, String> {
        let (x, w, r) = (node.operand(0)?, node.operand(1)?, node.operand(2)?);
        let ([first, second, features], [directions, _, hidden]) = (x.shape(), r.shape()) else {
            return Err(format!("its operands are {} and {}, expected three dimensions", x.ty(), r.ty()));
        };
        let batch_first = node.int("layout", 0) == 1;
        let (steps, batch) = if batch_first { (*second, *first) } else { (*first, *second) };
        let sizes = Self { steps, batch, features: *features, hidden: *hidden, directions: *directions, batch_first };
        let rows = kind.gates().checked_mul(*hidden).ok_or("its hidden size is too large")?;
        sizes.expect(w, [*directions, rows, *features], "W")?;
        sizes.expect(r, [*directions, rows, *hidden], "R")?;
        Ok(sizes)
    }

    fn expect<const N: usize>(&self, tensor: &Tensor, shape: [usize; N], name: &str) -> Result<(), String> {
        match tensor.shape() == shape {
            true => Ok(()),
            false => Err(format!("its {name} is {}, expected the shape {shape:?}", tensor.ty())),
        }
    }

    /// Where the features of a step of a row begin among the input's elements.
    fn at(&self, step: usize, row: usize) -> usize {
        self.features * if self.batch_first { row * self.steps + step } else { step * self.batch + row }
    }

    /// Where the state of a direction of a row begins among the elements of a state.
    fn state(&self, direction: usize, row: usize) -> usize {
        self.hidden * if self.batch_first { row * self.directions + direction } else { direction * self.batch + row }
    }

    fn state_shape(&self) -> [usize; 3] {
        match self.batch_first {
            true => [self.batch, self.directions, self.hidden],
            false => [self.directions, self.batch, self.hidden],
        }
    }

    /// Where what a step gives for a direction of a row begins among the first result's elements.
    fn output(&self, step: usize, direction: usize, row: usize) -> usize {
        self.hidden
            * match self.batch_first {
                true => (row * self.steps + step) * self.directions + direction,
                false => (step * self.directions + direction) * self.batch + row,
            }
    }

    fn output_shape(&self) -> [usize; 4] {
        match self.batch_first {
            true => [self.batch, self.steps, self.directions, self.hidden],
            false => [self.steps, self.directions, self.batch, self.hidden],
        }
    }
}

fn layer(node: &Node<'_>, kind: Kind) -> super::Results {
    let sizes = Sizes::of(node, kind)?;
    let Sizes { steps, batch, hidden, directions, .. } = sizes;
    let turned: &[bool] = match (node.text("direction", "forward").as_str(), directions) {
        ("forward", 1) => &[false],
        ("reverse", 1) => &[true],
        ("bidirectional", 2) => &[false, true],
        (other, _) => return Err(format!("its direction is `{other}`, and its weights are of {directions}").into()),
    };
    let lengths = lengths(node, sizes)?;
    let number = node.count(&sizes.output_shape())?;
    node.count(&[steps, batch, kind.gates() * hidden])?;
    let functions = functions(node, kind, directions)?;
    let initial = |index: usize, name: &str| -> Result<Vec<f64>, String> {
        let Some(given) = node.optional(index) else { return Ok(vec![0.0; directions * batch * hidden]) };
        sizes.expect(given, sizes.state_shape(), name)?;
        Ok(given.to_f64())
    };
    let is_lstm = matches!(kind, Kind::Lstm { .. });
    let mut states = initial(5, "initial_h")?;
    let mut cells = if is_lstm { initial(6, "initial_c")? } else { Vec::new() };
    let mut all = vec![0.0; number];
    let x = node.operand(0)?;
    let values = x.to_f64();
    for (direction, &backward) in turned.iter().enumerate() {
        let own = Direction::of(node, kind, sizes, direction, &functions[direction])?;
        for (row, &length) in lengths.iter().enumerate() {
            let at = sizes.state(direction, row);
            if length == 0 {
                states[at..at + hidden].fill(0.0);
                cells.iter_mut().skip(at).take(hidden).for_each(|cell| *cell = 0.0);
                continue;
            }
            let mut features = Vec::with_capacity(length * sizes.features);
            let step_of = |step: usize| if backward { length - 1 - step } else { step };
            for step in 0..length {
                features.extend_from_slice(&values[sizes.at(step_of(step), row)..][..sizes.features]);
            }
            let inputs = multiply(Matrix::new(&features, length, sizes.features), own.weight());
            let mut state = states[at..at + hidden].to_vec();
            let mut cell = if is_lstm { cells[at..at + hidden].to_vec() } else { Vec::new() };
            for (step, input) in inputs.chunks(kind.gates() * hidden.max(1)).enumerate().take(length) {
                own.step(input, &mut state, &mut cell);
                all[sizes.output(step_of(step), direction, row)..][..hidden].copy_from_slice(&state);
            }
            states[at..at + hidden].copy_from_slice(&state);
            if is_lstm {
                cells[at..at + hidden].copy_from_slice(&cell);
            }
        }
    }
    let mut results = vec![
        of_numbers(x.dtype(), &sizes.output_shape(), &all)?,
        of_numbers(x.dtype(), &sizes.state_shape(), &states)?,
    ];
    if is_lstm {
        results.push(of_numbers(x.dtype(), &sizes.state_shape(), &cells)?);
    }
    Ok(results)
}

/// How many steps each row has.
fn lengths(node: &Node<'_>, sizes: Sizes) -> Result<Vec<usize>, String> {
    let Some(given) = node.optional(4) else { return Ok(vec![sizes.steps; sizes.batch]) };
    let lengths: Option<Vec<usize>> = integers(given)?.into_iter().map(|l| usize::try_from(l).ok()).collect();
    let fits = |lengths: &Vec<usize>| lengths.len() == sizes.batch && lengths.iter().all(|&l| l <= sizes.steps);
    lengths
        .filter(fits)
        .ok_or_else(|| format!("its sequence_lens are not {} lengths of at most {} steps", sizes.batch, sizes.steps))
}

/// A function of one number.
type Function = Box<dyn Fn(f64) -> f64>;

/// The activation functions of each direction. What one takes besides is consumed in the order of the functions.
fn functions(node: &Node<'_>, kind: Kind, directions: usize) -> Result<Vec<Vec<Function>>, Failure> {
    let default = kind.activations();
    let names = node
        .strings("activations")
        .unwrap_or_else(|| default.iter().cycle().take(directions * default.len()).map(|n| (*n).to_owned()).collect());
    if names.len() != directions * default.len() {
        return Err(format!("it has {} activations, expected {}", names.len(), directions * default.len()).into());
    }
    let mut alphas = node.floats("activation_alpha").unwrap_or_default().into_iter();
    let mut betas = node.floats("activation_beta").unwrap_or_default().into_iter();
    let clip = node.op.setting("clip").map(|_| node.float("clip", 0.0));
    let mut functions = Vec::with_capacity(names.len());
    for (index, name) in names.into_iter().enumerate() {
        let mut alpha = |default: f64| alphas.next().unwrap_or(default);
        let mut beta = |default: f64| betas.next().unwrap_or(default);
        let function: Function = match name.to_ascii_lowercase().as_str() {
            "relu" => Box::new(|v: f64| if v < 0.0 { 0.0 } else { v }),
            "tanh" => Box::new(libm::tanh),
            "sigmoid" => Box::new(|v| 1.0 / (1.0 + libm::exp(-v))),
            "softsign" => Box::new(|v: f64| v / (1.0 + v.abs())),
            "softplus" => Box::new(|v: f64| v.max(0.0) + libm::log1p(libm::exp(-v.abs()))),
            "affine" => {
                let (alpha, beta) = (alpha(1.0), beta(0.0));
                Box::new(move |v| alpha * v + beta)
            }
            "leakyrelu" => {
                let alpha = alpha(0.01);
                Box::new(move |v| if v < 0.0 { alpha * v } else { v })
            }
            "thresholdedrelu" => {
                let alpha = alpha(1.0);
                Box::new(move |v| if v > alpha { v } else { 0.0 })
            }
            "scaledtanh" => {
                let (alpha, beta) = (alpha(1.0), beta(1.0));
                Box::new(move |v| alpha * libm::tanh(beta * v))
            }
            "hardsigmoid" => {
                let (alpha, beta) = (alpha(0.2), beta(0.5));
                Box::new(move |v| (alpha * v + beta).clamp(0.0, 1.0))
            }
            "elu" => {
                let alpha = alpha(1.0);
                Box::new(move |v| if v < 0.0 { alpha * libm::expm1(v) } else { v })
            }
            _ => return Err(not_known("activation", &name)),
        };
        let of_gate = index % default.len() < 2;
        functions.push(match clip {
            Some(clip) if clip > 0.0 && of_gate => Box::new(move |v: f64| function(v.clamp(-clip, clip))) as Function,
            _ => function,
        });
    }
    let mut functions = functions.into_iter();
    Ok((0..directions).map(|_| functions.by_ref().take(default.len()).collect()).collect())
}

/// The weights of one direction.
struct Direction<'a> {
    kind: Kind,
    sizes: Sizes,
    /// [gates * hidden, features].
    input: Vec<f64>,
    /// [gates * hidden, hidden].
    recurrent: Vec<f64>,
    /// What is added to what comes from the input, and from the state: [gates * hidden] each.
    biases: [Vec<f64>; 2],
    /// What the cell adds to the gates i, o and f of an LSTM: [3 * hidden].
    peepholes: Vec<f64>,
    functions: &'a [Function],
}

impl<'a> Direction<'a> {
    fn of(
        node: &Node<'_>,
        kind: Kind,
        sizes: Sizes,
        direction: usize,
        functions: &'a [Function],
    ) -> Result<Self, String> {
        let rows = kind.gates() * sizes.hidden;
        let part = |tensor: &Tensor, length: usize| tensor.to_f64()[direction * length..][..length].to_vec();
        let both = match node.optional(3) {
            Some(bias) => {
                sizes.expect(bias, [sizes.directions, 2 * rows], "B")?;
                part(bias, 2 * rows)
            }
            None => vec![0.0; 2 * rows],
        };
        let peepholes = match node.optional(7).filter(|_| matches!(kind, Kind::Lstm { .. })) {
            Some(peepholes) => {
                sizes.expect(peepholes, [sizes.directions, 3 * sizes.hidden], "P")?;
                part(peepholes, 3 * sizes.hidden)
            }
            None => vec![0.0; 3 * sizes.hidden],
        };
        Ok(Self {
            kind,
            sizes,
            input: part(node.operand(1)?, rows * sizes.features),
            recurrent: part(node.operand(2)?, rows * sizes.hidden),
            biases: [both[..rows].to_vec(), both[rows..].to_vec()],
            peepholes,
            functions,
        })
    }

    /// What turns features into gates.
    fn weight(&self) -> Matrix<'_> {
        Matrix::new(&self.input, self.kind.gates() * self.sizes.hidden, self.sizes.features).transposed()
    }

    /// What some gates get from a state, without what is added.
    fn of_state(&self, state: &[f64], first: usize, gates: usize) -> Vec<f64> {
        let hidden = self.sizes.hidden;
        let weight = &self.recurrent[first * hidden * hidden..(first + gates) * hidden * hidden];
        multiply(Matrix::new(state, 1, hidden), Matrix::new(weight, gates * hidden, hidden).transposed())
    }

    /// One step: `input` are the gates as they come from the features.
    fn step(&self, input: &[f64], state: &mut [f64], cell: &mut [f64]) {
        let hidden = self.sizes.hidden;
        let [of_input, of_state] = &self.biases;
        match self.kind {
            Kind::Rnn => {
                let recurrent = self.of_state(state, 0, 1);
                for i in 0..hidden {
                    state[i] = (self.functions[0])(input[i] + recurrent[i] + of_input[i] + of_state[i]);
                }
            }
            Kind::Gru { linear_before_reset } => {
                let gates = self.of_state(state, 0, 2);
                let gate = |i: usize| (self.functions[0])(input[i] + gates[i] + of_input[i] + of_state[i]);
                let update: Vec<f64> = (0..hidden).map(gate).collect();
                let reset: Vec<f64> = (hidden..2 * hidden).map(gate).collect();
                let candidate = match linear_before_reset {
                    true => {
                        let recurrent = self.of_state(state, 2, 1);
                        let one = |i: usize| reset[i] * (recurrent[i] + of_state[2 * hidden + i]);
                        (0..hidden).map(one).collect()
                    }
                    false => {
                        let kept: Vec<f64> = reset.iter().zip(&*state).map(|(r, h)| r * h).collect();
                        let mut recurrent = self.of_state(&kept, 2, 1);
                        recurrent.iter_mut().zip(&of_state[2 * hidden..]).for_each(|(sum, bias)| *sum += bias);
                        recurrent
                    }
                };
                for i in 0..hidden {
                    let new = (self.functions[1])(input[2 * hidden + i] + of_input[2 * hidden + i] + candidate[i]);
                    state[i] = (1.0 - update[i]) * new + update[i] * state[i];
                }
            }
            Kind::Lstm { input_forget } => {
                let gates = self.of_state(state, 0, 4);
                // In the order i, o, f, c; peepholes are those of i, o, f.
                let gate = |gate: usize, i: usize| {
                    let at = gate * hidden + i;
                    input[at] + gates[at] + of_input[at] + of_state[at]
                };
                for i in 0..hidden {
                    let opens = (self.functions[0])(gate(0, i) + self.peepholes[i] * cell[i]);
                    let keeps = match input_forget {
                        true => 1.0 - opens,
                        false => (self.functions[0])(gate(2, i) + self.peepholes[2 * hidden + i] * cell[i]),
                    };
                    let new = keeps * cell[i] + opens * (self.functions[1])(gate(3, i));
                    let shows = (self.functions[0])(gate(1, i) + self.peepholes[hidden + i] * new);
                    cell[i] = new;
                    state[i] = shows * (self.functions[2])(new);
                }
            }
        }
    }
}
