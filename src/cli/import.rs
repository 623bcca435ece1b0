//! The options that take a part of an ONNX graph.

use std::str::FromStr;

use anyhow::Result;
use planish_compiler::engine::{SizeRange, SymbolRanges};
use planish_onnx::ImportOptions;

use super::Usage;

/// Options for ONNX graphs.
#[derive(clap::Args)]
#[command(next_help_heading = "ONNX graphs")]
pub(super) struct ImportArguments {
    /// The shape of an input, such as input_ids=1x128 (1x? leaves the second size open). For target trt also a profile, MIN:OPT:MAX or
    /// one number for each symbol, such as batch_size=1:8:32,sequence_length=16:128:512; several times for several profiles
    #[arg(long, value_name = "NAME=SIZES")]
    shapes: Vec<Sizes>,
    /// Cut the graph: these values, outputs of any nodes, become its inputs
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    inputs: Vec<String>,
    /// Cut the graph: these values become its outputs
    #[arg(long, value_name = "C,D", value_delimiter = ',')]
    outputs: Vec<String>,
}

impl ImportArguments {
    /// The options for the import, for a command that takes no profiles.
    ///
    /// # Errors
    /// When an input is given two shapes, or a symbol a range.
    pub(super) fn options(&self) -> Result<ImportOptions> {
        let options = self.fixed(|size| size.shape.clone().or_else(|| size.row()))?;
        match self.shapes.iter().flat_map(|sizes| &sizes.0).find(|size| size.shape.is_none() && size.row().is_none()) {
            Some(Size { name, .. }) => {
                let message = format!("--shapes {name}: ranges of symbols are for `planish compile --target trt`");
                Err(Usage(message).into())
            }
            None => Ok(options),
        }
    }

    /// What these say where engines are built: numbers without an x are sizes of symbols, each option a profile.
    ///
    /// # Errors
    /// When an input is given two shapes, or a symbol two ranges in one profile.
    pub(super) fn with_profiles(&self) -> Result<(ImportOptions, Vec<SymbolRanges>)> {
        let mut profiles = Vec::new();
        for sizes in &self.shapes {
            let mut ranges = SymbolRanges::default();
            for Size { name, range, .. } in &sizes.0 {
                if let Some(range) = range
                    && ranges.0.insert(name.clone(), *range).is_some()
                {
                    return Err(Usage(format!("--shapes has `{name}` twice in one profile")).into());
                }
            }
            profiles.extend(Some(ranges).filter(|ranges| !ranges.0.is_empty()));
        }
        Ok((self.fixed(|size| size.shape.clone())?, profiles))
    }

    /// Refuses shapes of inputs, which only ONNX graphs take.
    ///
    /// # Errors
    /// When an input is given a shape.
    pub(super) fn refuse_shapes(&self) -> Result<()> {
        let shape = self.shapes.iter().flat_map(|sizes| &sizes.0).find(|size| size.shape.is_some());
        shape.map_or(Ok(()), |Size { name, .. }| {
            let message = format!(
                "--shapes {name}: the shape of an input is for ONNX graphs; fix a size of a checkpoint with \
                 batch_size=1,sequence_length=128"
            );
            Err(Usage(message).into())
        })
    }

    fn fixed(&self, shape: impl Fn(&Size) -> Option<Vec<i64>>) -> Result<ImportOptions> {
        let mut options =
            ImportOptions { inputs: self.inputs.clone(), outputs: self.outputs.clone(), ..ImportOptions::default() };
        for size in self.shapes.iter().flat_map(|sizes| &sizes.0) {
            if let Some(shape) = shape(size)
                && options.shapes.insert(size.name.clone(), shape).is_some()
            {
                return Err(Usage(format!("--shapes has `{}` twice", size.name)).into());
            }
        }
        Ok(options)
    }
}

/// What follows one `--shapes`.
#[derive(Clone)]
struct Sizes(Vec<Size>);

/// The shape of an input, or the range of a symbol.
#[derive(Clone)]
struct Size {
    name: String,
    /// Sizes with an x between them, or `?`.
    shape: Option<Vec<i64>>,
    /// A number, or three with colons between them.
    range: Option<SizeRange>,
}

impl Size {
    /// One number as the shape of an input with one dimension.
    fn row(&self) -> Option<Vec<i64>> {
        self.range.filter(|range| range.min == range.max).map(|range| vec![range.min])
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            "the form is NAME=SIZExSIZE for the shape of an input, e.g. input_ids=1x128 (1x? keeps a size), or \
             SYMBOL=MIN:OPT:MAX for the sizes of an engine, e.g. batch_size=1:8:32"
                .to_owned()
        };
        let (name, sizes) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(form)?;
        let name = name.to_owned();
        if sizes.contains(':') || sizes.parse::<u32>().is_ok() {
            return Ok(Self { name, shape: None, range: Some(sizes.parse()?) });
        }
        let size = |size: &str| match size {
            "?" => Ok(-1),
            _ => size.parse::<u32>().map(i64::from).map_err(|_| form()),
        };
        Ok(Self { name, shape: Some(sizes.split('x').map(size).collect::<Result<_, _>>()?), range: None })
    }
}
