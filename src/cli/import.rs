//! The options that take a part of an ONNX graph.

use std::str::FromStr;

use anyhow::Result;
use planish_onnx::ImportOptions;

use super::Usage;

/// Options for ONNX graphs.
#[derive(clap::Args)]
pub(super) struct ImportArguments {
    /// Fix the shape of an input of an ONNX graph, such as input_ids=1x128. input_ids=1x? keeps the second
    /// dimension as it is. Other inputs that share a dimension with this input get the same size
    #[arg(long, value_name = "NAME=1x128", value_delimiter = ',')]
    shapes: Vec<InputShape>,
    /// Cut an ONNX graph: the named values become its inputs. A value may be the output of any node
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    inputs: Vec<String>,
    /// Cut an ONNX graph: the named values become its outputs. planish removes nodes that the outputs do not need
    #[arg(long, value_name = "C,D", value_delimiter = ',')]
    outputs: Vec<String>,
}

impl ImportArguments {
    /// The options for the import.
    ///
    /// # Errors
    /// When an input is given two shapes.
    pub(super) fn options(&self) -> Result<ImportOptions> {
        let mut options =
            ImportOptions { inputs: self.inputs.clone(), outputs: self.outputs.clone(), ..ImportOptions::default() };
        for InputShape { name, sizes } in &self.shapes {
            if options.shapes.insert(name.clone(), sizes.clone()).is_some() {
                return Err(Usage(format!("--shapes has `{name}` twice")).into());
            }
        }
        Ok(options)
    }
}

/// The shape of an input.
#[derive(Clone)]
struct InputShape {
    name: String,
    sizes: Vec<i64>,
}

impl FromStr for InputShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "the form is NAME=SIZExSIZE, e.g. input_ids=1x128, or 1x? to keep a size".to_owned();
        let (name, sizes) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(form)?;
        let size = |size: &str| match size {
            "?" => Ok(-1),
            _ => size.parse::<u32>().map(i64::from).map_err(|_| form()),
        };
        Ok(Self { name: name.to_owned(), sizes: sizes.split('x').map(size).collect::<Result<_, _>>()? })
    }
}
