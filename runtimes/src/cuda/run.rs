//! A program with the addresses of one run.

use planish_ir::{DType, Shape, TensorType};

use super::buffers::Buffers;
use super::device::{Buffer, Device, KernelId};
use super::program::{Argument, Base, Place, Program, Step};
use super::weights::Weights;
use crate::Port;

/// A program whose kernels are compiled.
pub(super) struct Prepared {
    pub(super) program: Program,
    pub(super) kernels: Vec<KernelId>,
    pub(super) constants: Option<Buffer>,
}

/// The types of inputs, beside those of the ports.
pub(super) fn given_types<'a, 'b>(
    ports: &'a [Port],
    types: impl Iterator<Item = (DType, &'b [usize])>,
) -> Vec<(&'a str, &'a TensorType, TensorType)> {
    let of = |(dtype, sizes): (DType, &[usize])| {
        let dims = sizes.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX));
        TensorType::new(dtype, Shape::of(&dims.collect::<Vec<_>>()))
    };
    ports.iter().zip(types).map(|(port, given)| (port.name.as_str(), &port.ty, of(given))).collect()
}

/// The addresses of a run.
pub(super) struct Addresses<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) weights: &'a Weights,
    /// Where inputs are, in their order.
    pub(super) inputs: Vec<u64>,
    /// Where outputs are, in their order.
    pub(super) outputs: Vec<u64>,
    pub(super) buffers: &'a Buffers,
    /// The numbers of a packed batch.
    pub(super) packing: u64,
    /// The words of launches that take their arguments from memory.
    pub(super) words: u64,
}

impl Addresses<'_> {
    fn of(&self, place: Place) -> u64 {
        self.base(place.base) + place.offset as u64
    }

    /// Where memory begins.
    pub(super) fn base(&self, base: Base) -> u64 {
        match base {
            Base::Buffer(buffer) => self.buffers.address(&self.prepared.program, buffer),
            Base::Weight(value) => self.weights.address(value),
            Base::Input(input) => self.inputs[input],
            Base::Output(output) => self.outputs[output],
            Base::Constants => self.prepared.constants.as_ref().map_or(0, |memory| memory.address()),
            Base::Packing => self.packing,
            Base::Words => self.words,
        }
    }

    /// Gives all steps to the device.
    pub(super) fn run(&self, device: &dyn Device) -> Result<(), String> {
        self.prepared.program.steps.iter().try_for_each(|step| self.step(step, device))
    }

    /// Gives a step to the device.
    pub(super) fn step(&self, step: &Step, device: &dyn Device) -> Result<(), String> {
        match step {
            Step::Launch(launch) => {
                let addresses: Vec<u64> = launch
                    .arguments
                    .iter()
                    .map(|argument| match argument {
                        Argument::At(place) => self.of(*place),
                        Argument::Null | Argument::Value(_) => 0,
                    })
                    .collect();
                let arguments: Vec<&[u64]> = launch
                    .arguments
                    .iter()
                    .zip(&addresses)
                    .map(|(argument, address)| match argument {
                        Argument::Value(words) => words.as_slice(),
                        _ => std::slice::from_ref(address),
                    })
                    .collect();
                device.launch(self.prepared.kernels[launch.kernel], launch.grid, &arguments)
            }
            Step::Multiply(product) => device.multiply(&product.map(|place| self.of(place))),
            Step::Copy { to, from, bytes } => device.copy(self.of(*to), self.of(*from), *bytes),
        }
    }
}
