//! The layers of an engine, as TensorRT calls the kernels that it consists of, and which nodes of the ONNX file each computes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A layer of an engine: a kernel, or what is done between kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its name, which TensorRT made up.
    pub name: String,
    /// What kind it is, e.g. `gemm` or `kgen` (generated).
    pub kind: String,
    /// The implementation that was chosen, empty where that is done when the engine is loaded.
    pub tactic: String,
    /// The element types of its inputs, by TensorRT's names, e.g. `Half`.
    pub inputs: Vec<String>,
    /// The element types of its outputs.
    pub outputs: Vec<String>,
    /// The nodes of the ONNX file that it computes.
    pub nodes: Vec<String>,
}

/// The layers of an engine, in the order in which they run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layers(pub Vec<Layer>);

impl Layers {
    /// Reads the message that the builder logs with all layers of an engine. Lines that are no layers are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let list = text.split("\n\nI/O Tensors:").next().unwrap_or_default();
        Self(list.lines().filter_map(Layer::parse).collect())
    }

    /// The layers that compute attention as one kernel.
    pub fn attentions(&self) -> impl Iterator<Item = &Layer> {
        self.0.iter().filter(|layer| layer.is_attention())
    }

    /// How many regions the compiler of TensorRT made of the graph. A layer outside of them counts as one.
    #[must_use]
    pub fn regions(&self) -> usize {
        let numbers: BTreeSet<&str> = self.0.iter().filter_map(Layer::region).collect();
        numbers.len() + self.0.iter().filter(|layer| layer.region().is_none()).count()
    }

    /// The profile of an engine with so many profiles that a layer is for, where that is known: the compiler makes a region
    /// for each profile of a graph that it takes as a whole.
    #[must_use]
    pub fn profile(&self, layer: &Layer, profiles: usize) -> Option<usize> {
        let region = layer.region()?.parse().ok()?;
        (self.regions() == profiles && region < profiles).then_some(region)
    }
}

impl Layer {
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.strip_prefix("Name: ")?.split_once(", LayerType: ")?;
        let (kind, rest) = rest.split_once(", Inputs: [")?;
        let (rest, metadata) = rest.rsplit_once(", Metadata: ")?;
        let (rest, tactic) = rest.rsplit_once(", TacticName: ")?;
        let tactic = tactic.rsplit_once(", StreamId: ").map_or(tactic, |(tactic, _)| tactic);
        let (inputs, rest) = rest.split_once("], Constants: [").or_else(|| rest.split_once("], Outputs: ["))?;
        let outputs = rest.rsplit_once("Outputs: [").map_or(rest, |(_, outputs)| outputs);
        let node = |text: &str| Some(text.trim().strip_prefix("[ONNX Layer: ")?.strip_suffix(']')?.to_owned());
        Some(Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            tactic: tactic.to_owned(),
            inputs: types(inputs),
            outputs: types(outputs),
            nodes: metadata.split('\u{1f}').filter_map(node).collect(),
        })
    }

    /// Whether it computes attention: both products and the softmax between them.
    #[must_use]
    pub fn is_attention(&self) -> bool {
        self.name.contains("mha")
    }

    /// The region that it belongs to: names end in `_mylREGION_INDEX`.
    fn region(&self) -> Option<&str> {
        let (_, region) = self.name.rsplit_once("_myl")?;
        let (region, index) = region.split_once('_')?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (number(region) && number(index)).then_some(region)
    }
}

fn types(tensors: &str) -> Vec<String> {
    let found = tensors.split("Datatype: ").skip(1);
    found.map(|rest| rest.split([',', ' ', '}']).next().unwrap_or_default().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Layers:\nName: __mye5781_0_myl0_0, LayerType: shape_call, Inputs: [], Constants: [], Outputs: [], \
                        TacticName: , StreamId: 0, Metadata: \nName: _gemm_mha_v2_myl0_7, LayerType: kgen, Inputs: [ { \
                        Name: q, Dimensions: [-1,16], Strides: [16,1], Datatype: Half, Format: (Linear) Row major }, { \
                        Name: mask, Dimensions: [-1], Datatype: Float, Format: (Linear) }], Constants: [], Outputs: [ { \
                        Name: o, Datatype: Half, Format: (Linear) }], TacticName: _gemm_mha_v2_0xd9, StreamId: 0, \
                        Metadata: [ONNX Layer: a/softmax]\u{1f}[ONNX Layer: a/matmul]\nName: Reformatting CopyNode for \
                        Input Tensor 0 to x, LayerType: Reformat, Inputs: [ { Name: x, Datatype: Half, Format: (Linear) \
                        }], Outputs: [ { Name: y, Datatype: Float, Format: (Linear) }], TacticName: 0x03, StreamId: 0, \
                        Metadata: \n\nI/O Tensors:\n Name: x, IOMode: Input\n";

    #[test]
    fn the_message_of_the_builder_is_read() {
        let layers = Layers::parse(TEXT);
        let kinds: Vec<&str> = layers.0.iter().map(|layer| layer.kind.as_str()).collect();
        assert_eq!(kinds, ["shape_call", "kgen", "Reformat"]);
        let [attention] = layers.attentions().collect::<Vec<_>>()[..] else { panic!("one attention") };
        assert_eq!(attention.inputs, ["Half", "Float"]);
        assert_eq!(attention.outputs, ["Half"]);
        assert_eq!(attention.nodes, ["a/softmax", "a/matmul"]);
        assert_eq!(attention.tactic, "_gemm_mha_v2_0xd9");
        assert_eq!(layers.0[2].tactic, "0x03");
        assert_eq!(layers.0[2].outputs, ["Float"]);
        // Region 0, and the copy.
        assert_eq!(layers.regions(), 2);
        assert_eq!(layers.profile(attention, 1), None);
        let [first, second] = ["_myl0_3", "_myl1_0"].map(|end| Layer { name: end.to_owned(), ..attention.clone() });
        let both = Layers(vec![first, second]);
        assert_eq!(both.0.iter().map(|layer| both.profile(layer, 2)).collect::<Vec<_>>(), [Some(0), Some(1)]);
    }

    #[test]
    fn text_that_is_no_list_has_no_layers() {
        for text in ["", "Layers:\n", "Name: , LayerType: x", "Name: a, LayerType: b, Inputs: [, Metadata: "] {
            assert_eq!(Layers::parse(text), Layers::default(), "{text}");
        }
    }
}
