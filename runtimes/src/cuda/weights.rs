//! Weights in the memory of a device.

use std::collections::HashMap;

use planish_ir::{Graph, ValueId};

use super::device::{Buffer, Device};
use super::memory::ALIGNMENT;

/// The weights of a graph, in one allocation, or in one for each.
pub(super) struct Weights {
    addresses: HashMap<ValueId, u64>,
    _memory: Vec<Buffer>,
}

impl Weights {
    /// Reads weights piece by piece, and copies them to the device.
    ///
    /// # Errors
    /// When a weight cannot be read, or the device has not enough memory.
    pub(super) fn load(device: &dyn Device, graph: &Graph, separate: bool) -> Result<Self, String> {
        let mut needed: Vec<ValueId> = Vec::new();
        for id in graph.needed_nodes() {
            graph.node(id).op.visit_operands(&mut |value| needed.push(value));
        }
        needed.extend(graph.outputs().iter().map(|output| output.value));
        needed.sort_unstable();
        needed.dedup();
        // The allocation of each weight, the bytes in front of it there, and the bytes of each allocation.
        let (mut places, mut sizes) = (Vec::new(), vec![0usize]);
        let weights: Vec<_> = needed.into_iter().filter_map(|value| Some((value, graph.weight(value)?))).collect();
        for (_, weight) in &weights {
            let bytes = usize::try_from(weight.bytes()).map_err(|e| e.to_string())?;
            if separate {
                sizes.push(bytes);
                places.push((sizes.len() - 1, 0));
            } else {
                places.push((0, sizes[0]));
                let end = sizes[0].checked_add(bytes).ok_or("the weights overflow memory")?;
                sizes[0] = end.next_multiple_of(ALIGNMENT);
            }
        }
        let memory = sizes.into_iter().map(|bytes| device.allocate(bytes)).collect::<Result<Vec<_>, _>>()?;
        let mut addresses = HashMap::new();
        for ((value, weight), (allocation, offset)) in weights.iter().zip(places) {
            let mut address = memory[allocation].address() + offset as u64;
            addresses.insert(*value, address);
            let read = weight.stream(&mut |bytes| {
                device.upload(address, bytes).map_err(std::io::Error::other)?;
                address += bytes.len() as u64;
                Ok(())
            });
            let name = &graph.value(*value).name;
            read.map_err(|e| format!("the weight `{name}` cannot be loaded: {e}"))?;
        }
        device.wait()?;
        Ok(Self { addresses, _memory: memory })
    }

    /// Where a weight begins.
    pub(super) fn address(&self, value: ValueId) -> u64 {
        *self.addresses.get(&value).unwrap_or_else(|| unreachable!("the weights that nodes read are loaded"))
    }
}
