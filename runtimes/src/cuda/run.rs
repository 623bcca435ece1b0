//! A program with the addresses of one run.

use super::buffers::Buffers;
use super::device::{Buffer, Device, KernelId};
use super::program::{Argument, Base, Place, Program, Step};
use super::tensor::DeviceTensor;
use super::weights::Weights;

/// A program whose kernels are compiled.
pub(super) struct Prepared {
    pub(super) program: Program,
    pub(super) kernels: Vec<KernelId>,
    pub(super) constants: Option<Buffer>,
}

/// The addresses of a run.
pub(super) struct Addresses<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) weights: &'a Weights,
    pub(super) inputs: &'a [&'a DeviceTensor],
    pub(super) outputs: &'a [DeviceTensor],
    pub(super) buffers: &'a Buffers,
    /// The numbers of a packed batch.
    pub(super) packing: Option<&'a Buffer>,
}

impl Addresses<'_> {
    fn of(&self, place: Place) -> u64 {
        let start = match place.base {
            Base::Buffer(buffer) => self.buffers.address(&self.prepared.program, buffer),
            Base::Weight(value) => self.weights.address(value),
            Base::Input(input) => self.inputs[input].memory.address(),
            Base::Output(output) => self.outputs[output].memory.address(),
            Base::Constants => self.prepared.constants.as_ref().map_or(0, |memory| memory.address()),
            Base::Packing => self.packing.map_or(0, |memory| memory.address()),
        };
        start + place.offset as u64
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
