//! The graph of a rank, built node by node.

use std::collections::HashMap;

use planish_ir::ops::{AllGather, AllReduce, Cast, Concat, Reshape, Slice, Transpose};
use planish_ir::{DType, Dim, Graph, InputRole, Node, Op, OutputRole, Shape, TensorType, ValueId, Weight};

use super::apart::{Need, localize, needs, spread};
use super::cut::Cut;
use super::tokens::Tokens;
use super::wants::Wants;
use super::{Plan, PlannedCollective, PlannedWeight, ShardError};

/// A graph in the making.
pub(super) struct Rank<'a> {
    /// The whole graph.
    pub(super) from: &'a Graph,
    to: Graph,
    pub(super) ranks: usize,
    pub(super) rank: usize,
    pub(super) wants: Wants,
    pub(super) tokens: Tokens,
    /// The values of the whole graph here, as nodes give them: in parts with how they are cut, or whole.
    held: HashMap<ValueId, (ValueId, Option<Cut>)>,
    /// Other forms of them that were made since.
    forms: HashMap<(ValueId, Option<Cut>), ValueId>,
    plan: Plan,
}

/// The graph of a rank, and the plan of all.
pub(super) fn build(from: &Graph, ranks: usize, rank: usize) -> Result<(Graph, Plan), ShardError> {
    if ranks < 2 {
        return Err(ShardError::Ranks(ranks));
    }
    let plan = Plan { ranks, weights: Vec::new(), caches: Vec::new(), collectives: Vec::new() };
    let mut to = Graph::new(&from.name);
    to.interface = from.interface.clone();
    let tokens = Tokens::of(from);
    let wants = Wants::of(from, &tokens, ranks)?;
    let (held, forms) = (HashMap::new(), HashMap::new());
    let mut building = Rank { from, to, ranks, rank, wants, tokens, held, forms, plan };
    building.inputs();
    for id in from.needed_nodes() {
        building.node(from.node(id))?;
    }
    building.outputs()?;
    let Rank { mut to, plan, .. } = building;
    if plan.collectives.is_empty() {
        return Err(ShardError::Nothing { graph: from.name.clone(), ranks });
    }
    to.compact();
    Ok((to, plan))
}

impl Rank<'_> {
    fn inputs(&mut self) {
        for &input in self.from.inputs() {
            let value = self.from.value(input);
            let is_cache = matches!(self.from.interface.input(&value.name), InputRole::Cache(_));
            let cut = self.wants.cut(input).filter(|cut| is_cache && cut.fits(self.ranks)).cloned();
            let mut ty = value.ty.clone();
            if let (Some(cut), Some(tensor)) = (&cut, value.ty.as_tensor()) {
                let shape = tensor.shape.with_dim(cut.axis, dim(cut.local(self.ranks)));
                ty = TensorType::new(tensor.dtype, shape).into();
                self.plan.caches.push((value.name.clone(), cut.clone()));
            }
            let own = self.to.add_input(&value.name, ty, value.origin.clone());
            self.held.insert(input, (own, cut));
        }
    }

    fn outputs(&mut self) -> Result<(), ShardError> {
        for output in self.from.outputs() {
            let cut = self.held(output.value).filter(|cut| self.stays_cut(&output.name, cut));
            if let Some(cut) = &cut {
                self.plan.caches.push((output.name.clone(), cut.clone()));
            }
            let value = self.take(output.value, cut.as_ref())?;
            self.to.add_output(&output.name, value);
        }
        Ok(())
    }

    /// Whether an output stays in parts: a cache does, unless the next step takes all of it.
    fn stays_cut(&self, output: &str, cut: &Cut) -> bool {
        let OutputRole::Cache(entry) = self.from.interface.output(output) else { return false };
        let is_past =
            |input: &&ValueId| self.from.interface.input(&self.from.value(**input).name) == InputRole::Cache(entry);
        let past = self.from.inputs().iter().find(is_past);
        past.is_none_or(|past| self.held(*past).as_ref() == Some(cut))
    }

    /// How a value is cut.
    pub(super) fn held(&self, value: ValueId) -> Option<Cut> {
        self.held.get(&value)?.1.clone()
    }

    /// Notes what stands for a result of a node.
    pub(super) fn hold(&mut self, result: ValueId, own: ValueId, cut: Option<Cut>) {
        self.held.insert(result, (own, cut));
    }

    /// The shape that a value has here.
    pub(super) fn shape(&self, own: ValueId) -> Shape {
        self.to.ty(own).shape.clone()
    }

    /// The type of a value here.
    pub(super) fn ty(&self, own: ValueId) -> &TensorType {
        self.to.ty(own)
    }

    /// A form of a value that was made before.
    pub(super) fn form(&self, value: ValueId, cut: &Cut) -> Option<ValueId> {
        self.forms.get(&(value, Some(cut.clone()))).copied()
    }

    /// Notes a form of a value.
    pub(super) fn note_form(&mut self, value: ValueId, cut: &Cut, own: ValueId) {
        self.forms.insert((value, Some(cut.clone())), own);
    }

    /// Emits what stands for a result of a node.
    pub(super) fn emit(&mut self, op: impl Into<Op>, like: ValueId) -> Result<Vec<ValueId>, ShardError> {
        let value = self.from.value(like);
        Ok(self.to.emit(op, &value.name, value.origin.clone())?)
    }

    /// Emits a part of that.
    pub(super) fn part(&mut self, op: impl Into<Op>, like: ValueId) -> Result<ValueId, ShardError> {
        let (op, value) = (op.into(), self.from.value(like));
        let name = format!("{}/{}", value.name, op.mnemonic());
        Ok(self.to.emit(op, &name, value.origin.clone())?[0])
    }

    /// A constant that is a part of what stands for a value.
    pub(super) fn constant(&mut self, dtype: DType, number: f64, like: ValueId) -> ValueId {
        let name = format!("{}/const", self.from.value(like).name);
        self.to.add_scalar(&name, dtype, number)
    }

    /// A value, cut or whole.
    pub(super) fn take(&mut self, value: ValueId, cut: Option<&Cut>) -> Result<ValueId, ShardError> {
        if let Some((own, held)) = self.held.get(&value)
            && held.as_ref() == cut
        {
            return Ok(*own);
        }
        let key = (value, cut.cloned());
        if let Some(own) = self.forms.get(&key) {
            return Ok(*own);
        }
        let made = match (self.from.weight(value), cut, self.held(value)) {
            (Some(weight), ..) => self.weight(value, weight, cut)?,
            (None, None, Some(held)) => self.gathered(value, &held)?,
            (None, Some(cut), _) => {
                let whole = self.take(value, None)?;
                self.sliced(whole, value, cut)?
            }
            (None, None, None) => unreachable!("nodes are built in order"),
        };
        self.forms.insert(key, made);
        Ok(made)
    }

    /// A weight, or the part of it that the rank has.
    fn weight(&mut self, value: ValueId, weight: &Weight, cut: Option<&Cut>) -> Result<ValueId, ShardError> {
        let own = match cut {
            Some(cut) => self.sliced_weight(value, weight, cut)?,
            None => weight.clone(),
        };
        Ok(self.planned_weight(value, weight, own, cut))
    }

    /// Adds a weight and notes it in the plan.
    pub(super) fn planned_weight(&mut self, of: ValueId, whole: &Weight, own: Weight, cut: Option<&Cut>) -> ValueId {
        let (value, rank_bytes) = (self.from.value(of), own.bytes());
        self.plan.weights.push(PlannedWeight {
            name: value.name.clone(),
            cut: cut.cloned(),
            bytes: whole.bytes(),
            rank_bytes,
        });
        self.to.add_weight(&value.name, own, value.origin.clone())
    }

    /// The part of a weight that the rank has, without reading it.
    fn sliced_weight(&self, value: ValueId, weight: &Weight, cut: &Cut) -> Result<Weight, ShardError> {
        let ranges = cut.ranges(self.ranks, self.rank);
        let parts: Option<Vec<Weight>> = ranges.into_iter().map(|range| weight.slice(cut.axis, range)).collect();
        let sliced = parts.and_then(|parts| match parts.as_slice() {
            [one] => Some(one.clone()),
            several => Weight::concat(several, cut.axis),
        });
        let (name, origin) = (self.from.value(value).name.clone(), self.from.value(value).origin.clone());
        let Some(sliced) = sliced else { return Err(ShardError::Whole { name, origin, ranks: self.ranks }) };
        let loses_codes = weight.as_dequantized().is_some() && sliced.as_dequantized().is_none();
        if loses_codes { Err(ShardError::Blocks { name, origin, ranks: self.ranks }) } else { Ok(sliced) }
    }

    /// The part of a whole value that the rank has.
    fn sliced(&mut self, whole: ValueId, like: ValueId, cut: &Cut) -> Result<ValueId, ShardError> {
        let mut parts = Vec::new();
        for range in cut.ranges(self.ranks, self.rank) {
            let slice = Slice { x: whole, axis: cut.axis, start: dim(range.start), end: dim(range.end) };
            parts.push(self.part(slice, like)?);
        }
        match parts.as_slice() {
            [one] => Ok(*one),
            _ => self.part(Concat { parts, axis: cut.axis }, like),
        }
    }

    /// The sum of what all ranks have.
    pub(super) fn summed(&mut self, own: ValueId, like: ValueId) -> Result<ValueId, ShardError> {
        self.exchange(AllReduce { x: own, ranks: self.ranks }, own, like)
    }

    fn exchange(&mut self, op: impl Into<Op>, own: ValueId, like: ValueId) -> Result<ValueId, ShardError> {
        let op = op.into();
        let (name, tensor) = (self.from.value(like).name.clone(), self.to.ty(own).clone());
        self.plan.collectives.push(PlannedCollective { name, operator: op.mnemonic(), tensor });
        self.part(op, like)
    }

    /// The parts of all ranks put together.
    fn gathered(&mut self, value: ValueId, cut: &Cut) -> Result<ValueId, ShardError> {
        let own = self.take(value, Some(cut))?;
        self.joined(own, value, cut)
    }

    /// What is cut put together: each run becomes whole.
    pub(super) fn joined(&mut self, own: ValueId, like: ValueId, cut: &Cut) -> Result<ValueId, ShardError> {
        let dtype = self.to.ty(own).dtype;
        if dtype == DType::Bool {
            let numbers = self.part(Cast { x: own, to: DType::I32 }, like)?;
            let joined = self.joined(numbers, like, cut)?;
            return self.part(Cast { x: joined, to: DType::Bool }, like);
        }
        let shape = self.shape(own);
        let all = self.exchange(AllGather { x: own, ranks: self.ranks }, own, like)?;
        // [ranks, .., part, ..]
        let by_rank = Shape::new(std::iter::once(dim(self.ranks)).chain(shape.iter().cloned()));
        let by_rank = self.part(Reshape { x: all, shape: by_rank }, like)?;
        let (axis, mut begin, mut runs) = (cut.axis + 1, 0, Vec::new());
        for run in &cut.runs {
            let piece = run.piece(self.ranks);
            let mut x = by_rank;
            if cut.runs.len() > 1 {
                x = self.part(Slice { x, axis, start: dim(begin), end: dim(begin + piece) }, like)?;
            }
            begin += piece;
            let pieces = self.ranks / run.copies;
            if run.copies > 1 {
                let rest = self.shape(x)[1..].to_vec();
                let copied = Shape::new([dim(pieces), dim(run.copies)].into_iter().chain(rest.iter().cloned()));
                x = self.part(Reshape { x, shape: copied }, like)?;
                x = self.part(Slice { x, axis: 1, start: dim(0), end: dim(1) }, like)?;
                x = self.part(Reshape { x, shape: Shape::new(std::iter::once(dim(pieces)).chain(rest)) }, like)?;
            }
            // The ranks come in front of their pieces.
            let mut perm: Vec<usize> = (1..=shape.rank()).collect();
            perm.insert(cut.axis, 0);
            x = self.part(Transpose { x, perm }, like)?;
            x = self.part(Reshape { x, shape: shape.with_dim(cut.axis, dim(run.size)) }, like)?;
            runs.push(x);
        }
        match runs.as_slice() {
            [one] => Ok(*one),
            _ => self.part(Concat { parts: runs, axis: cut.axis }, like),
        }
    }

    fn node(&mut self, node: &Node) -> Result<(), ShardError> {
        match &node.op {
            Op::AllReduce(_) | Op::AllGather(_) => {
                Err(ShardError::Collective(self.from.value(node.outputs[0]).name.clone()))
            }
            Op::LinearAttention(_) => {
                let value = self.from.value(node.outputs[0]);
                let (name, origin) = (value.name.clone(), value.origin.clone());
                Err(ShardError::State { operator: node.op.mnemonic(), name, origin })
            }
            Op::Attention(op) => self.attention(node, op),
            Op::Linear(op) if self.from.weight(op.weight).is_some() => self.linear(node, op),
            Op::Embedding(op) if self.from.weight(op.weight).is_some() => self.embedding(node, op),
            Op::Experts(op) => self.experts(node, op),
            _ => self.other(node),
        }
    }

    /// An operator that takes parts where it treats them apart, and whole operands else.
    pub(super) fn other(&mut self, node: &Node) -> Result<(), ShardError> {
        let Some((operands, first, results)) = self.apart(node) else { return self.whole(node) };
        let mut op = self.with_operands(node, &operands)?;
        localize(&mut op, &first, &results, self.ranks);
        let own = self.emit(op, node.outputs[0])?;
        for ((result, own), cut) in node.outputs.iter().zip(own).zip(results) {
            self.hold(*result, own, Some(cut));
        }
        Ok(())
    }

    /// An operator on whole operands.
    fn whole(&mut self, node: &Node) -> Result<(), ShardError> {
        let operands: Vec<Need> = node.op.operands().into_iter().map(|operand| (operand, None)).collect();
        let op = self.with_operands(node, &operands)?;
        let own = self.emit(op, node.outputs[0])?;
        for (result, own) in node.outputs.iter().zip(own) {
            self.hold(*result, own, None);
        }
        Ok(())
    }

    /// How a node takes its operands in parts, how the one that its attributes are of is cut, and how its results are.
    fn apart(&self, node: &Node) -> Option<(Vec<Need>, Cut, Vec<Cut>)> {
        let held = |value: ValueId| self.held(value);
        let fit = |cuts: &[Cut]| cuts.iter().all(|cut| cut.fits(self.ranks));
        let operands = node.op.operands();
        for &operand in &operands {
            let Some(cut) = self.held(operand) else { continue };
            let Some(results) = spread(self.from, node, operand, &held, self.ranks).filter(|cuts| fit(cuts)) else {
                continue;
            };
            if operands.len() == 1 {
                return Some((vec![(operand, Some(cut.clone()))], cut, results));
            }
            if let Some(needs) = needs(self.from, node, &results, self.ranks) {
                return Some((needs, cut, results));
            }
        }
        // Weights alone may be cut for those who take the result.
        let results = node.outputs.iter().map(|result| self.wants.cut(*result).cloned()).collect::<Option<Vec<_>>>()?;
        let needs = needs(self.from, node, &results, self.ranks)?;
        let mut cut = needs.iter().filter_map(|(operand, cut)| Some((operand, cut.as_ref()?)));
        let of_weights = cut.clone().all(|(operand, cut)| self.from.weight(*operand).is_some() && cut.fits(self.ranks));
        let first = cut.next()?.1.clone();
        (of_weights && fit(&results)).then_some((needs, first, results))
    }

    /// The operator of a node, with operands as it needs them.
    pub(super) fn with_operands(&mut self, node: &Node, needs: &[Need]) -> Result<Op, ShardError> {
        let mut own = HashMap::new();
        for (operand, cut) in needs {
            own.insert(*operand, self.take(*operand, cut.as_ref())?);
        }
        let mut op = node.op.clone();
        op.visit_operands_mut(&mut |operand| *operand = own.get(operand).copied().unwrap_or(*operand));
        Ok(op)
    }
}

/// A known size.
pub(super) fn dim(size: usize) -> Dim {
    Dim::constant(i64::try_from(size).unwrap_or(i64::MAX))
}
