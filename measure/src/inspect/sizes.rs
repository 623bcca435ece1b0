//! Whether a model takes the sizes that a user asks for.

use planish_data::inputs::{Open, Sizes, open_sizes};
use planish_ir::{Graph, ValueId};
use planish_runtimes::Port;

use super::Opened;

/// The sizes that a user asks for; absent ones are left to planish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Rows.
    pub batch: Option<usize>,
    /// Tokens of a row.
    pub sequence: Option<usize>,
    /// Cached tokens in front of them.
    pub past: Option<usize>,
}

impl Asked {
    /// Checks that there is a row and a token.
    ///
    /// # Errors
    /// When a size is 0: the text names the option.
    pub fn check_positive(self) -> Result<(), String> {
        match [("--batch", self.batch), ("--seq", self.sequence)].into_iter().find(|(_, size)| *size == Some(0)) {
            Some((option, _)) => Err(format!("{option} is at least 1")),
            None => Ok(()),
        }
    }
}

/// The side of images whose sizes are open.
pub const IMAGE_SIDE: usize = 224;

/// The tokens of a row, where nothing is asked for.
const SEQUENCE: usize = 128;

impl Opened {
    /// Which sizes some part leaves open.
    pub(crate) fn open_sizes(&self) -> Open {
        let parts = self.graphs.iter().map(|(_, graph)| open_sizes(graph));
        parts.fold(Open::default(), |all, one| Open {
            rows: all.rows || one.rows,
            tokens: all.tokens || one.tokens,
            past: all.past || one.past,
        })
    }

    /// The sizes of inputs: one row of 128 tokens, or as many as the model takes if that is less, where nothing is asked for.
    #[must_use]
    pub fn sizes(&self, asked: Asked) -> Sizes {
        let room = self.longest.map_or(SEQUENCE, |longest| longest.saturating_sub(asked.past.unwrap_or(0)).max(1));
        let sequence = asked.sequence.unwrap_or(SEQUENCE.min(room));
        Sizes { batch: asked.batch.unwrap_or(1), sequence, side: Some(IMAGE_SIDE) }
    }

    /// Checks sizes against what the inputs leave open and what the model takes.
    ///
    /// # Errors
    /// When a size is 0, or the model does not take it: the text names the option and the inputs.
    pub fn check_sizes(&self, asked: Asked) -> Result<(), String> {
        let Asked { batch, sequence, past } = asked;
        asked.check_positive()?;
        let open = self.open_sizes();
        for (option, size, is_open) in
            [("--batch", batch, open.rows), ("--seq", sequence, open.tokens), ("--past", past, open.past)]
        {
            if size.is_some() && !is_open {
                let inputs: Vec<String> =
                    self.graphs.iter().flat_map(|(_, graph)| ports(graph)).map(|p| p.to_string()).collect();
                return Err(format!(
                    "{option} has no effect: no dimension of the inputs is open to it; leave it out. The inputs are {}",
                    inputs.join(", ")
                ));
            }
        }
        let tokens = sequence.unwrap_or(0).saturating_add(past.unwrap_or(0));
        match self.longest {
            Some(longest) if tokens > longest => {
                Err(format!("the model takes at most {longest} tokens in a row, and --seq and --past ask for {tokens}"))
            }
            _ => Ok(()),
        }
    }
}

/// The inputs of a graph.
pub(crate) fn ports(graph: &Graph) -> Vec<Port> {
    let port = |id: &ValueId| Port { name: graph.value(*id).name.clone(), ty: graph.ty(*id).clone() };
    graph.inputs().iter().map(port).collect()
}
