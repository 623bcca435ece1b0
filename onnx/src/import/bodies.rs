//! Graphs of nodes that pass through. An operator keeps its graphs as bytes, which hold small constants only: large ones
//! become weights of the graph around it.

use std::collections::HashSet;

use planish_ir::ops::Inner;

use super::foreign::exists;
use super::is_default;
use super::order::label;
use super::scope::Scope;
use super::tensors::is_elsewhere;
use crate::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, TensorProto};

/// The names that a graph and those in its nodes define.
pub(crate) fn names(graph: &GraphProto, into: &mut HashSet<String>) {
    into.extend(graph.input.iter().map(|i| i.name.clone()));
    into.extend(graph.initializer.iter().map(|t| t.name.clone()));
    for node in &graph.node {
        into.extend(node.output.iter().cloned());
        node.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|g| names(g, into));
    }
}

/// A graph that passes through: what it is written as, and what it needs of other domains.
pub(super) struct Body<'a> {
    /// What names of its constants begin with outside.
    prefix: &'a str,
    /// The names that it defines.
    own: HashSet<String>,
    /// Operators of other domains.
    pub(super) inner: Vec<Inner>,
}

impl<'a> Body<'a> {
    /// Brings constants whose elements are elsewhere into the scope, from where the graph takes them.
    ///
    /// # Errors
    /// When a constant cannot be had, or the graph contains what is not read.
    pub(super) fn lift(scope: &mut Scope, graph: &mut GraphProto, prefix: &'a str) -> Result<Self, String> {
        let mut own = HashSet::new();
        names(graph, &mut own);
        let mut body = Self { prefix, own, inner: Vec::new() };
        body.graph(scope, graph)?;
        Ok(body)
    }

    fn graph(&mut self, scope: &mut Scope, graph: &mut GraphProto) -> Result<(), String> {
        if !graph.sparse_initializer.is_empty() {
            return Err("it has a sparse initializer, which is not supported".to_owned());
        }
        let (large, small) = std::mem::take(&mut graph.initializer).into_iter().partition(is_elsewhere);
        graph.initializer = small;
        for node in &mut graph.node {
            self.node(scope, node).map_err(|e| format!("{} in it: {e}", label(node)))?;
        }
        let mut nodes = Vec::new();
        for tensor in Vec::<TensorProto>::into_iter(large) {
            // An input's value is always given.
            if !graph.input.iter().any(|input| input.name == tensor.name) {
                let from = self.constant(scope, &tensor.name, &tensor)?;
                nodes.push(identity(from, tensor.name));
            }
        }
        graph.node.splice(0..0, nodes);
        Ok(())
    }

    fn node(&mut self, scope: &mut Scope, node: &mut NodeProto) -> Result<(), String> {
        let version = scope.version(&node.domain);
        if is_default(&node.domain) {
            exists(&node.op_type, version)?;
        } else {
            let version = usize::try_from(version).unwrap_or(1);
            let inner = Inner { domain: node.domain.clone(), op: node.op_type.clone(), version };
            if !self.inner.contains(&inner) {
                self.inner.push(inner);
            }
        }
        let is_constant = node.op_type == "Constant" && is_default(&node.domain);
        if let (true, [AttributeProto { t: Some(tensor), .. }], [output]) =
            (is_constant, node.attribute.as_slice(), node.output.as_slice())
            && is_elsewhere(tensor)
        {
            let from = self.constant(scope, output, tensor)?;
            *node = identity(from, output.clone());
        }
        for attribute in &mut node.attribute {
            match AttributeType::try_from(attribute.kind).unwrap_or(AttributeType::Undefined) {
                AttributeType::Graph => {
                    let graph = attribute.g.as_mut().ok_or_else(|| format!("`{}` has no graph", attribute.name))?;
                    self.graph(scope, graph)?;
                }
                AttributeType::Tensor if attribute.t.as_ref().is_some_and(is_elsewhere) => {
                    return Err(format!("its tensor `{}` is large", attribute.name));
                }
                AttributeType::Float
                | AttributeType::Int
                | AttributeType::String
                | AttributeType::Tensor
                | AttributeType::Floats
                | AttributeType::Ints
                | AttributeType::Strings
                | AttributeType::TypeProto => {}
                other => return Err(format!("attribute `{}` of kind {other:?} is not supported", attribute.name)),
            }
        }
        Ok(())
    }

    /// Makes a name outside stand for a constant.
    fn constant(&mut self, scope: &mut Scope, name: &str, tensor: &TensorProto) -> Result<String, String> {
        let mut outside = format!("{}/{name}", self.prefix);
        while scope.is_defined(&outside) || self.own.contains(&outside) {
            outside.push('_');
        }
        scope.constant(&outside, tensor).map_err(|e| format!("constant `{name}`: {e}"))?;
        Ok(outside)
    }
}

/// A result of a graph is computed in it, so that a name from outside does not do.
pub(super) fn identity(from: String, to: String) -> NodeProto {
    NodeProto {
        name: to.clone(),
        op_type: "Identity".to_owned(),
        input: vec![from],
        output: vec![to],
        ..NodeProto::default()
    }
}
