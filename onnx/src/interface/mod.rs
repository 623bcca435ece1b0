//! What the tensors of a graph are, by their names and types: the roles that the architectures of planish state themselves.
//!
//! The names are those of Optimum, Transformers.js, PyTorch's exporter and onnxruntime-genai; names.rs has the tables.

mod cache;
mod names;
mod symbols;
#[cfg(test)]
mod tests;

pub use symbols::names_rows;

use planish_ir::{DType, Dim, Graph, InputRole, OutputRole, PartInterface, PartRole, TensorType};

/// The name of an input or an output, and its type where it is a tensor of a known number of dimensions.
pub type Named<'a> = (&'a str, Option<&'a TensorType>);

/// The role of a part by its name: of the only part, and of one of a name that is not known, that of the whole model.
#[must_use]
pub fn part_role(name: &str) -> PartRole {
    names::PARTS.iter().find(|(known, _)| *known == name).map(|(_, role)| *role).unwrap_or_default()
}

/// What the inputs, the outputs and the symbols of a part are.
#[must_use]
pub fn infer(role: PartRole, inputs: &[Named<'_>], outputs: &[Named<'_>]) -> PartInterface {
    let input = |(name, ty): &Named<'_>| ((*name).to_owned(), input_role(role, name, *ty));
    let output = |(name, ty): &Named<'_>| ((*name).to_owned(), output_role(name, *ty));
    let roles: Vec<(String, InputRole)> = inputs.iter().map(input).collect();
    let typed = roles.iter().zip(inputs).filter_map(|((_, role), (_, ty))| Some((*role, (*ty)?)));
    let symbols = symbols::roles(&typed.collect::<Vec<_>>());
    PartInterface { role, inputs: roles.into_iter().collect(), outputs: outputs.iter().map(output).collect(), symbols }
}

/// What the inputs, the outputs and the symbols of a graph are.
#[must_use]
pub fn of_graph(graph: &Graph, role: PartRole) -> PartInterface {
    let inputs = graph.inputs().iter().map(|id| (graph.value(*id).name.as_str(), graph.type_of(*id).as_tensor()));
    let outputs = graph.outputs().iter().map(|output| (&*output.name, graph.type_of(output.value).as_tensor()));
    infer(role, &inputs.collect::<Vec<_>>(), &outputs.collect::<Vec<_>>())
}

/// Infers what the tensors of a graph are that does not say it, such as one in the text form.
pub fn state(graph: &mut Graph) {
    if graph.interface.is_empty() {
        graph.interface = of_graph(graph, PartRole::Model);
    }
}

fn input_role(part: PartRole, name: &str, ty: Option<&TensorType>) -> InputRole {
    if let Some(entry) = cache::past(name, ty) {
        return InputRole::Cache(entry);
    }
    let known = names::INPUTS.iter().find(|(known, _)| *known == name).map(|(_, role)| *role);
    let ending = || names::INPUT_ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, role)| *role);
    match (known.or_else(ending).unwrap_or_default(), part) {
        (InputRole::TokenIds, PartRole::FirstStep | PartRole::NextStep) => InputRole::DecoderTokenIds,
        (InputRole::Waveform, _) if ty.is_some_and(|ty| ty.shape.rank() == 3) => InputRole::Features,
        (InputRole::Image, _) if !ty.is_some_and(has_levels) => InputRole::Other,
        (InputRole::Recording, _) if !ty.is_some_and(has_samples) => InputRole::Other,
        (role, _) => role,
    }
}

/// Whether a tensor may be levels of pictures: u8 [rows, height, width, 3].
fn has_levels(ty: &TensorType) -> bool {
    ty.dtype == DType::U8 && ty.shape.rank() == 4 && ty.shape[3] == Dim::constant(3)
}

/// Whether a tensor may be samples of recordings: f32 [rows, samples].
fn has_samples(ty: &TensorType) -> bool {
    ty.dtype == DType::F32 && ty.shape.rank() == 2
}

fn output_role(name: &str, ty: Option<&TensorType>) -> OutputRole {
    if let Some(entry) = cache::present(name, ty) {
        return OutputRole::Cache(entry);
    }
    names::OUTPUTS.iter().find(|(known, _)| *known == name).map(|(_, role)| *role).unwrap_or_default()
}
