//! Activation functions, by the names that `ACT2FN` of the transformers library has for them. Those with weights of their own
//! (`prelu`, `xielu`) are not here.

use planish_ir::ValueId;
use planish_ir::ops::{BinaryKind, Gelu, GeluForm, Select, Unary, UnaryKind};

use crate::ModelError;
use crate::checkpoint::config::Config;
use crate::layers::builder::Builder;

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Gelu(GeluForm),
    Unary(UnaryKind),
    /// `relu(x)^2`.
    SquaredRelu,
    /// `gelu(x)` from -10 to 10.
    ClippedGelu,
    /// `x * sigmoid(1.702 * x)`.
    QuickGelu,
    /// `x * min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `(1 + erf((x - 0.707107) / (0.282095 * sqrt(2)))) / 2`.
    Laplace,
    /// `max(x, 0.01 * x)`.
    LeakyRelu,
    /// `x`.
    Linear,
    /// `x * tanh(softplus(x))`.
    Mish,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `log(1 + e^x)`. Not by a name.
    Softplus,
    /// `sqrt(softplus(x))`.
    SqrtSoftplus,
}

impl Activation {
    /// `x * sigmoid(x)`.
    pub(crate) const SILU: Self = Self::Unary(UnaryKind::Silu);
}

/// The mean of `laplace`, with the digits that the transformers library has.
#[allow(clippy::approx_constant, reason = "the reference rounds it so")]
const LAPLACE_MEAN: f64 = 0.707_107;

const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu(GeluForm::Erf)),
    ("gelu_10", Activation::ClippedGelu),
    ("gelu_accurate", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_fast", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_new", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_python", Activation::Gelu(GeluForm::Erf)),
    ("gelu_python_tanh", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_pytorch_tanh", Activation::Gelu(GeluForm::Tanh)),
    ("hardswish", Activation::HardSwish),
    ("laplace", Activation::Laplace),
    ("leaky_relu", Activation::LeakyRelu),
    ("linear", Activation::Linear),
    ("mish", Activation::Mish),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Unary(UnaryKind::Relu)),
    ("relu2", Activation::SquaredRelu),
    ("relu6", Activation::Relu6),
    ("sigmoid", Activation::Unary(UnaryKind::Sigmoid)),
    ("silu", Activation::Unary(UnaryKind::Silu)),
    ("sqrtsoftplus", Activation::SqrtSoftplus),
    ("swish", Activation::Unary(UnaryKind::Silu)),
    ("tanh", Activation::Unary(UnaryKind::Tanh)),
];

impl Activation {
    pub(crate) const TANH: Self = Activation::Unary(UnaryKind::Tanh);
    pub(crate) const RELU: Self = Activation::Unary(UnaryKind::Relu);
    pub(crate) const SIGMOID: Self = Activation::Unary(UnaryKind::Sigmoid);
    pub(crate) const GELU: Self = Activation::Gelu(GeluForm::Erf);

    /// The function that a key names, or the default where it is absent.
    ///
    /// # Errors
    /// When the key is null: transformers 4.57 and 5.23 fail then too, for each architecture here. They
    /// take their default only where the key is absent.
    pub(crate) fn read(config: &Config<'_>, key: &'static str, default: &'static str) -> Result<Self, ModelError> {
        Self::named(config, key, Self::name(config, key, default)?)
    }

    /// The text of a key that names a function; null is an error.
    pub(crate) fn name<'a>(
        config: &Config<'a>,
        key: &'static str,
        default: &'static str,
    ) -> Result<&'a str, ModelError> {
        if config.is_null(key) {
            return Err(config.error(format!(
                "`{key}` is null, which names no activation function: set it to the function that the model was trained \
                 with, or remove the key to take the default"
            )));
        }
        config.text(key, default)
    }

    /// The function of a name, which a key gives.
    pub(crate) fn named(config: &Config<'_>, key: &str, name: &str) -> Result<Self, ModelError> {
        let found = ACTIVATIONS.iter().find(|(known, _)| *known == name);
        found.map(|(_, activation)| *activation).ok_or_else(|| {
            let known: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
            config.error(format!("`{key}` is \"{name}\", which is not supported: known are {}", known.join(", ")))
        })
    }

    /// The function that a path of a class of `torch.nn` names, such as `torch.nn.modules.activation.Tanh`.
    pub(crate) fn of_torch(path: &str) -> Option<Self> {
        let class = path.rsplit('.').next()?;
        let name = match class {
            "Identity" => "linear",
            "LeakyReLU" => "leaky_relu",
            "Hardswish" => "hardswish",
            "GELU" | "Mish" | "ReLU" | "ReLU6" | "Sigmoid" | "SiLU" | "Tanh" => &class.to_ascii_lowercase(),
            _ => return None,
        };
        ACTIVATIONS.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// The function of a value.
    pub(crate) fn apply(self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        const KEY: &str = "hidden_act";
        let at = |name: &str| format!("{module}.{name}");
        let by = |b: &mut Builder<'_>, kind, x, number, name: &str| b.with_number(kind, x, number, name, KEY);
        let multiply = |b: &mut Builder<'_>, x, other| b.binary(BinaryKind::Mul, [x, other], module);
        match self {
            Activation::Gelu(form) => b.emit(Gelu { x, form }, module),
            Activation::Unary(kind) => b.emit(Unary { kind, x }, module),
            Activation::SquaredRelu => {
                let x = b.emit(Unary { kind: UnaryKind::Relu, x }, &at("relu"))?;
                multiply(b, x, x)
            }
            Activation::ClippedGelu => {
                let x = b.emit(Gelu { x, form: GeluForm::Erf }, &at("gelu"))?;
                let x = by(b, BinaryKind::Max, x, -10.0, &at("max"))?;
                by(b, BinaryKind::Min, x, 10.0, module)
            }
            Activation::QuickGelu => {
                let scaled = by(b, BinaryKind::Mul, x, 1.702, &at("scaled"))?;
                let gate = b.emit(Unary { kind: UnaryKind::Sigmoid, x: scaled }, &at("sigmoid"))?;
                multiply(b, x, gate)
            }
            Activation::HardSwish => {
                let moved = by(b, BinaryKind::Add, x, 3.0, &at("add"))?;
                let gate = relu6(b, moved, &at("relu6"))?;
                let product = b.binary(BinaryKind::Mul, [x, gate], &at("mul"))?;
                by(b, BinaryKind::Div, product, 6.0, module)
            }
            Activation::Laplace => {
                let moved = by(b, BinaryKind::Sub, x, LAPLACE_MEAN, &at("sub"))?;
                let part = by(b, BinaryKind::Div, moved, 0.282_095 * 2f64.sqrt(), &at("div"))?;
                let erf = b.emit(Unary { kind: UnaryKind::Erf, x: part }, &at("erf"))?;
                let sum = by(b, BinaryKind::Add, erf, 1.0, &at("add"))?;
                by(b, BinaryKind::Mul, sum, 0.5, module)
            }
            Activation::LeakyRelu => {
                let slope = by(b, BinaryKind::Mul, x, 0.01, &at("slope"))?;
                b.binary(BinaryKind::Max, [x, slope], module)
            }
            Activation::Linear => Ok(x),
            Activation::Mish => {
                let soft = softplus(b, x, &at("softplus"))?;
                let gate = b.emit(Unary { kind: UnaryKind::Tanh, x: soft }, &at("tanh"))?;
                multiply(b, x, gate)
            }
            Activation::Relu6 => relu6(b, x, module),
            Activation::Softplus => softplus(b, x, module),
            Activation::SqrtSoftplus => {
                let soft = softplus(b, x, &at("softplus"))?;
                b.emit(Unary { kind: UnaryKind::Sqrt, x: soft }, module)
            }
        }
    }
}

fn relu6(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let x = b.emit(Unary { kind: UnaryKind::Relu, x }, &format!("{module}.relu"))?;
    b.with_number(BinaryKind::Min, x, 6.0, module, "hidden_act")
}

/// `log(1 + e^x)`, as `max(x, 0) + log(1 + e^-|x|)`, which does not overflow.
pub(crate) fn softplus(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    const KEY: &str = "hidden_act";
    let at = |name: &str| format!("{module}.{name}");
    let mut unary = |kind, x, name: &str| b.emit(Unary { kind, x }, &at(name));
    let size = unary(UnaryKind::Abs, x, "abs")?;
    let negative = unary(UnaryKind::Neg, size, "neg")?;
    let power = unary(UnaryKind::Exp, negative, "exp")?;
    let large = unary(UnaryKind::Relu, x, "relu")?;
    // The logarithm of a sum that is rounded, times the share of the power that rounding left (Goldberg 1991, theorem 4).
    let sum = b.with_number(BinaryKind::Add, power, 1.0, &at("sum"), KEY)?;
    let left = b.with_number(BinaryKind::Sub, sum, 1.0, &at("left"), KEY)?;
    let share = b.binary(BinaryKind::Div, [power, left], &at("share"))?;
    let log = b.emit(Unary { kind: UnaryKind::Log, x: sum }, &at("log"))?;
    let exact = b.binary(BinaryKind::Mul, [log, share], &at("exact"))?;
    let condition = b.with_number(BinaryKind::Equal, left, 0.0, &at("lost"), KEY)?;
    let rest = b.emit(Select { condition, a: power, b: exact }, &at("rest"))?;
    b.add(large, rest, module)
}
