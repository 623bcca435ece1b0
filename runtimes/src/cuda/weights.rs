//! Weights in the memory of a device.

use std::collections::HashMap;

use planish_ir::{Graph, ValueId};

use super::device::{Buffer, Device};
use super::memory::ALIGNMENT;

/// The weights of a graph, in one allocation.
pub(super) struct Weights {
    memory: Buffer,
    /// The bytes in front of each weight.
    offsets: HashMap<ValueId, usize>,
}

impl Weights {
    /// Reads weights piece by piece, and copies them to the device.
    ///
    /// # Errors
    /// When a weight cannot be read, or the device has not enough memory.
    pub(super) fn load(device: &dyn Device, graph: &Graph) -> Result<Self, String> {
        let mut needed: Vec<ValueId> = Vec::new();
        for id in graph.needed_nodes() {
            graph.node(id).op.visit_operands(&mut |value| needed.push(value));
        }
        needed.extend(graph.outputs().iter().map(|output| output.value));
        needed.sort_unstable();
        needed.dedup();
        let (mut offsets, mut end) = (HashMap::new(), 0usize);
        let weights: Vec<_> = needed.into_iter().filter_map(|value| Some((value, graph.weight(value)?))).collect();
        for (value, weight) in &weights {
            offsets.insert(*value, end);
            let bytes = usize::try_from(weight.bytes()).map_err(|e| e.to_string())?;
            end = end.checked_add(bytes).ok_or("the weights overflow memory")?.next_multiple_of(ALIGNMENT);
        }
        let memory = device.allocate(end)?;
        for (value, weight) in &weights {
            let mut address = memory.address() + offsets[value] as u64;
            let read = weight.stream(&mut |bytes| {
                device.upload(address, bytes).map_err(std::io::Error::other)?;
                address += bytes.len() as u64;
                Ok(())
            });
            let name = &graph.value(*value).name;
            read.map_err(|e| format!("the weight `{name}` cannot be loaded: {e}"))?;
        }
        device.wait()?;
        Ok(Self { memory, offsets })
    }

    /// Where a weight begins.
    pub(super) fn address(&self, value: ValueId) -> u64 {
        let offset = self.offsets.get(&value).unwrap_or_else(|| unreachable!("the weights that nodes read are loaded"));
        self.memory.address() + *offset as u64
    }
}
