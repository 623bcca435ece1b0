//! The time of modules as a tree.

use serde::Serialize;

use super::NodeTime;

/// The time of a module in milliseconds.
#[derive(Debug, Default, Serialize)]
pub struct ModuleTime {
    /// The last part of its name, e.g. `query`; empty of the whole model.
    pub name: String,
    /// The time of nodes that are in none of its modules.
    pub self_ms: f64,
    /// The time of all of its nodes.
    pub total_ms: f64,
    /// Its nodes that are in none of its modules, by operator and time.
    pub operators: Vec<(String, f64)>,
    /// Its modules, in the order in which they start.
    pub modules: Vec<ModuleTime>,
}

impl ModuleTime {
    /// The tree of nodes.
    pub(super) fn of(nodes: &[NodeTime]) -> Self {
        let mut root = Self::default();
        for node in nodes {
            let mut module = &mut root;
            module.total_ms += node.self_ms;
            for part in node.module.split('.').filter(|part| !part.is_empty()) {
                let place = module.modules.iter().position(|m| m.name == part).unwrap_or_else(|| {
                    module.modules.push(Self { name: part.to_owned(), ..Self::default() });
                    module.modules.len() - 1
                });
                module = &mut module.modules[place];
                module.total_ms += node.self_ms;
            }
            module.self_ms += node.self_ms;
            match module.operators.iter_mut().find(|(operator, _)| *operator == node.operator) {
                Some((_, time)) => *time += node.self_ms,
                None => module.operators.push((node.operator.clone(), node.self_ms)),
            }
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_has_the_time_of_what_is_in_it() {
        let node = |module: &str, operator: &str, ms: f64| NodeTime {
            name: String::new(),
            operator: operator.to_owned(),
            provider: String::new(),
            module: module.to_owned(),
            self_ms: ms,
            total_ms: ms,
            flops: None,
            bytes: None,
        };
        let nodes =
            [node("a.0.q", "Gemm", 2.0), node("a.0", "Add", 1.0), node("", "Shape", 0.5), node("a.0.q", "Gemm", 3.0)];
        let root = ModuleTime::of(&nodes);
        assert_eq!((root.self_ms, root.total_ms), (0.5, 6.5));
        let layer = &root.modules[0].modules[0];
        assert_eq!((layer.name.as_str(), layer.self_ms, layer.total_ms), ("0", 1.0, 6.0));
        assert_eq!(layer.modules[0].operators, [("Gemm".to_owned(), 5.0)]);
    }
}
