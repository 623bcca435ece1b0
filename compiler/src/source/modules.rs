//! The modules of a model that the nodes of its graphs belong to, such as `encoder.layer.0.attention.self.query`: those of the
//! checkpoint where names of nodes and weights tell.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use planish_ir::handle::Handle;
use planish_ir::{Graph, Node, NodeId, Origin, ValueId};

/// The name of what belongs to no module.
pub const OUTSIDE: &str = "(outside of modules)";

/// The module of each node of a graph; its parts are joined by dots, and it is empty outside of modules.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    by_node: HashMap<NodeId, String>,
    layers: Layers,
}

/// The names of the nodes of a file.
#[derive(Clone, Debug, Default)]
pub struct NodeNames {
    /// The first results of the nodes, by the names of the nodes.
    pub results: BTreeMap<String, String>,
    /// Whether names without a parent are those of modules, such as `lm_head`: in the files that planish writes.
    pub are_modules: bool,
}

impl NodeNames {
    /// The modules that the names of nodes tell, by the results of the nodes.
    fn modules(&self) -> HashMap<&str, String> {
        let module = |name: &str| match self.are_modules && !name.contains('/') {
            true => Some(name.to_owned()),
            false => of_name(name),
        };
        self.results.iter().filter_map(|(name, result)| Some((result.as_str(), module(name)?))).collect()
    }
}

impl Modules {
    /// The modules of a graph. Names of nodes and of values give them: `/encoder/layer.0/output/Add` and
    /// `encoder.layer.0.output/add` belong to `encoder.layer.0.output`. A node whose names tell nothing belongs to the module
    /// of a weight that it reads, or of one that its only user reads, or to the module of the node in front of it.
    pub fn of(graph: &Graph, names: &NodeNames) -> Self {
        let mut named = names.modules();
        // The node of an output may have the name of the output, which is none of a module.
        for output in graph.outputs() {
            if named.get(output.name.as_str()).is_some_and(|module| *module == output.name) {
                named.remove(output.name.as_str());
            }
        }
        let told = |node: &Node| {
            let result = node.outputs.first().map(|value| graph.value(*value).name.as_str());
            result.and_then(|result| named.get(result).cloned()).or_else(|| told(graph, node))
        };
        let counts = graph.use_counts();
        let users = only_users(graph, &counts);
        let (mut by_node, mut last) = (HashMap::new(), String::new());
        for (id, node) in graph.nodes() {
            let user = || node.outputs.first().and_then(|value| users.get(value)).map(|user| graph.node(*user));
            let module = told(node)
                .or_else(|| of_weights(graph, node))
                .or_else(|| user().filter(|user| told(user).is_none()).and_then(|user| of_weights(graph, user)));
            if let Some(module) = module {
                last = module;
            }
            by_node.insert(id, last.clone());
        }
        let layers = Layers::of(by_node.values().map(String::as_str));
        Self { by_node, layers }
    }

    /// The module of a node.
    pub fn module(&self, node: NodeId) -> &str {
        self.by_node.get(&node).map_or("", String::as_str)
    }

    /// The layer that a node belongs to.
    pub fn layer(&self, node: NodeId) -> &str {
        self.layers.of_module(self.module(node))
    }
}

/// Which modules are the layers of a model: `encoder.layer.0` and the like, and what lies beside them.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Those whose names end in a number.
    numbered: BTreeSet<String>,
}

impl Layers {
    /// The layers among modules.
    pub fn of<'a>(modules: impl Iterator<Item = &'a str>) -> Self {
        Self { numbered: modules.filter_map(numbered).map(str::to_owned).collect() }
    }

    /// The layer that a module belongs to: up to its first part that is a number; without one, as short as it can be
    /// without being a parent of such layers, e.g. `embeddings` or `decoder.embed_tokens`.
    pub fn of_module<'a>(&self, module: &'a str) -> &'a str {
        if module.is_empty() {
            return OUTSIDE;
        }
        if let Some(layer) = numbered(module) {
            return layer;
        }
        let is_parent = |part: &str| {
            let below = self.numbered.range(format!("{part}.")..).next();
            below.is_some_and(|layer| layer.strip_prefix(part).is_some_and(|rest| rest.starts_with('.')))
        };
        let ends = module.match_indices('.').map(|(at, _)| at);
        ends.filter_map(|at| module.get(..at)).find(|part| !is_parent(part)).unwrap_or(module)
    }
}

/// A module up to its first part that is a number.
pub fn numbered(module: &str) -> Option<&str> {
    let mut start = 0;
    for part in module.split('.') {
        let end = start + part.len();
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return module.get(..end);
        }
        start = end + 1;
    }
    None
}

/// What ONNX Runtime's optimizers put in front of the name of a node or of a result.
const OPTIMIZERS: &[&str] = &["InsertedPrecisionFreeCast_", "fused "];

/// The module that the name of a node or of its result tells; of a node at the top of the model, the empty one. What an
/// optimizer put after the name of a node is left out.
pub fn of_name(name: &str) -> Option<String> {
    let name = OPTIMIZERS.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && !part.ends_with("Fusion")).collect();
    match parts.as_slice() {
        // A name with colons is one that an exporter made up, e.g. `onnx::Add_209`.
        [flat] if !name.contains('/') || name.contains("::") => {
            (flat.contains('.') && !flat.contains("::")).then(|| (*flat).to_owned())
        }
        [modules @ .., _] => Some(modules.join(".")),
        [] => None,
    }
}

/// The module that the names of a node tell.
fn told(graph: &Graph, node: &Node) -> Option<String> {
    let value = graph.value(*node.outputs.first()?);
    of_name(&value.name).or_else(|| match &value.origin {
        Origin::Node { name, .. } => of_name(name),
        Origin::Module(module) => Some(module.to_string()),
        _ => None,
    })
}

/// The module of the first weight of a name that a node reads: the name without its last part.
fn of_weights(graph: &Graph, node: &Node) -> Option<String> {
    let of_weight = |value: ValueId| {
        graph.weight(value)?;
        graph.value(value).name.rsplit_once('.').map(|(module, _)| module.trim_start_matches('/').replace('/', "."))
    };
    node.op.operands().into_iter().find_map(of_weight)
}

/// The node that uses a value, where it is only one.
fn only_users(graph: &Graph, counts: &[usize]) -> HashMap<ValueId, NodeId> {
    let mut users = HashMap::new();
    for (id, node) in graph.nodes() {
        node.op.visit_operands(&mut |value| {
            if counts.get(value.index()) == Some(&1) {
                users.insert(value, id);
            }
        });
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_modules() {
        let of = |name: &str| of_name(name);
        let some = |module: &str| Some(module.to_owned());
        assert_eq!(of("/encoder/layer.0/attention/self/MatMul_output_0"), some("encoder.layer.0.attention.self"));
        assert_eq!(of("encoder.layer.0.output/add"), some("encoder.layer.0.output"));
        assert_eq!(of("encoder.layer.0.output"), some("encoder.layer.0.output"));
        let fused = "encoder.layer.0.attention/matmul/MatmulTransposeFusion//MatMulScaleFusion/";
        assert_eq!(of(fused), some("encoder.layer.0.attention"));
        assert_eq!(of("InsertedPrecisionFreeCast_/encoder/layer.0/query/Add_output_0"), some("encoder.layer.0.query"));
        assert_eq!(of("fused pooler.dense"), some("pooler.dense"));
        assert_eq!(of("/Where_1"), some(""));
        assert_eq!([of("val_29"), of("onnx::Add_209"), of("")], [None, None, None]);
    }

    #[test]
    fn layers_are_numbered_or_as_short_as_they_can_be() {
        let modules = ["decoder.block.0.layer.1.Dense", "decoder.block.1", "encoder.layer.10.output", "norm"];
        let layers = Layers::of(modules.into_iter());
        let of = |module| layers.of_module(module);
        assert_eq!(of("decoder.block.0.layer.1.Dense"), "decoder.block.0");
        assert_eq!(of("decoder.embed_tokens.scale"), "decoder.embed_tokens");
        assert_eq!(of("decoder"), "decoder");
        assert_eq!([of("embeddings.LayerNorm"), of("norm"), of("")], ["embeddings", "norm", OUTSIDE]);
        assert_eq!(of("encoder.norm"), "encoder.norm");
    }
}
