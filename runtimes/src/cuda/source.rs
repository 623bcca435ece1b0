//! The sources of kernels: files of this folder, specialised by macros.

use std::borrow::Cow;
use std::fmt;

use planish_ir::DType;

/// The text in front of every file.
const COMMON: &str = include_str!("kernels/common.cuh");
/// Reductions of rows.
const ROWS: &str = include_str!("kernels/rows.cuh");
/// What kernels of attention share.
const ATTENTION: &str = include_str!("kernels/attention.cuh");

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct File {
    /// Its name without `.cu`.
    pub(crate) name: &'static str,
    /// The texts in front of its own.
    headers: &'static [&'static str],
    text: &'static str,
}

macro_rules! files {
    ($($constant:ident = $name:literal, [$($header:ident),*];)*) => {
        $(pub(crate) const $constant: File = File {
            name: $name,
            headers: &[COMMON, $($header),*],
            text: include_str!(concat!("kernels/", $name, ".cu")),
        };)*
        #[cfg(test)]
        pub(crate) const FILES: &[File] = &[$($constant),*];
    };
}

files! {
    DECODE = "decode", [ROWS, ATTENTION];
    ELEMENTWISE = "elementwise", [];
    FLASH = "flash", [ROWS, ATTENTION];
    FLASH_FLOAT = "flash_float", [ROWS, ATTENTION];
    GATHER = "gather", [];
    GEMV = "gemv", [ROWS];
    NORM = "norm", [ROWS];
    QUANTIZE = "quantize", [];
    QUANTIZED_LINEAR = "quantized_linear", [ROWS, ATTENTION];
    REDUCE = "reduce", [ROWS];
    ROTARY = "rotary", [];
    SCAN = "scan", [ROWS];
    SCORES = "scores", [ROWS, ATTENTION];
    SOFTMAX = "softmax", [ROWS];
    SPIN = "spin", [];
    TOPK = "topk", [ROWS];
}

/// The macro of kernels whose parameters are in memory.
const STORED: &str = "PARAMETERS_STORED";

#[cfg(test)]
impl File {
    /// A file of a test, with all headers.
    pub(crate) const fn of_test(name: &'static str, text: &'static str) -> Self {
        Self { name, headers: &[COMMON, ROWS, ATTENTION], text }
    }
}

/// A kernel: a function of a file with its macros.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) file: File,
    /// The name of the function.
    pub(crate) kernel: &'static str,
    /// The macros and what they stand for.
    pub(crate) macros: Vec<(&'static str, Value)>,
}

/// What a macro stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Number(usize),
    Text(Cow<'static, str>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(holds: bool) -> Self {
        Self::Number(usize::from(holds))
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<Cow<'static, str>> for Value {
    fn from(text: Cow<'static, str>) -> Self {
        Self::Text(text)
    }
}

impl Source {
    pub(crate) fn new(file: File, kernel: &'static str) -> Self {
        Self { file, kernel, macros: Vec::new() }
    }

    /// With a macro.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.macros.push((name, value.into()));
        self
    }

    /// The same kernel with its parameters in memory: it has one parameter, the address of words with the values of the
    /// others, each from a word of its own on. A launch has so many threads in a block.
    pub(crate) fn stored(self, threads: u32) -> Self {
        self.with(STORED, threads as usize)
    }

    /// The name of the function that a device loads.
    pub(crate) fn function(&self) -> Cow<'static, str> {
        match self.macros.iter().any(|(name, _)| *name == STORED) {
            true => format!("{}_stored", self.kernel).into(),
            false => self.kernel.into(),
        }
    }

    /// The whole text. The macros are part of it, so that it alone says what is compiled.
    pub(crate) fn text(&self) -> String {
        let macros: String = self.macros.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        format!("{macros}{}\n#line 1 \"{}.cu\"\n{}", self.file.headers.join("\n"), self.file.name, self.file.text)
    }
}

/// What kernels call an element type; `None` where they do not have it.
pub(crate) fn c_type(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "float",
        DType::F16 => "half_t",
        DType::Bf16 => "bf16_t",
        DType::F64 => "double",
        DType::Bool => "bool",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::I16 => "short",
        DType::U16 => "unsigned short",
        DType::I32 => "int",
        DType::U32 => "unsigned",
        DType::I64 => "long long",
        DType::U64 => "unsigned long long",
        _ => return None,
    })
}

/// Whether a model spends its time in a kernel.
pub(crate) fn is_hot(source: &Source) -> bool {
    [DECODE, FLASH, FLASH_FLOAT, GEMV, NORM, QUANTIZE, QUANTIZED_LINEAR, REDUCE, SCAN, SOFTMAX, SCORES, ROTARY, TOPK]
        .contains(&source.file)
        || source.file == ELEMENTWISE && source.kernel != "elementwise_strided"
}
