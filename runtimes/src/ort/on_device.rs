//! Runs on values in the memory of a device, and their times by its clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaEvent, DriverError};
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::session::{IoBinding, NoSelectedOutputs, RunOptions, Session};
use planish_eval::Tensor;
use planish_ir::DType;

use crate::driver::elapsed;
use crate::ort::device::DeviceMemory;
use crate::ort::tensor::OrtValue;
use crate::{DeviceTimes, Port};

/// Inputs and outputs in the memory of a device, for runs that copy nothing.
pub(super) struct DeviceBound {
    binding: IoBinding,
    /// Returns when the run is started.
    unsynchronized: RunOptions<NoSelectedOutputs>,
    inputs: Vec<OrtValue>,
    outputs: Vec<OrtValue>,
    /// Copies of the inputs and room for the outputs in the host's memory, once runs with transfers are measured.
    host: Option<[Vec<Vec<u8>>; 2]>,
    device: Arc<DeviceMemory>,
}

/// An input where a session on a device takes it.
pub(super) fn input(device: &Arc<DeviceMemory>, port: &Port, tensor: &Tensor) -> Result<OrtValue, String> {
    match port.ty.dtype {
        DType::String => OrtValue::of_texts(tensor),
        // ONNX Runtime refuses some values without elements in the memory of a device.
        _ if tensor.shape().contains(&0) => OrtValue::of(tensor).map_err(|e| e.to_string()),
        _ => device.copy(tensor),
    }
}

/// Runs a session once; its outputs are in the memory of the device, where they are no texts.
pub(super) fn outputs_of(
    session: &mut Session,
    device: &Arc<DeviceMemory>,
    [inputs, outputs]: [&[Port]; 2],
    values: &[&OrtValue],
) -> Result<Vec<OrtValue>, String> {
    let binding = binding(session, device, [inputs, outputs], values).map_err(|e| e.to_string())?;
    ran(session, device, outputs, &binding)
}

fn binding(
    session: &Session,
    device: &DeviceMemory,
    [inputs, outputs]: [&[Port]; 2],
    values: &[&OrtValue],
) -> Result<IoBinding, ort::Error> {
    let mut binding = session.create_binding()?;
    for (port, value) in inputs.iter().zip(values) {
        binding.bind_input(&*port.name, value.inner())?;
    }
    let there = device.info()?;
    let here = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default)?;
    for port in outputs {
        let memory = if port.ty.dtype == DType::String { &here } else { &there };
        binding.bind_output_to_device(&*port.name, memory)?;
    }
    Ok(binding)
}

/// Runs what is bound, and takes the outputs.
fn ran(
    session: &mut Session,
    device: &Arc<DeviceMemory>,
    outputs: &[Port],
    binding: &IoBinding,
) -> Result<Vec<OrtValue>, String> {
    let mut given = session.run_binding(binding).map_err(|e| e.to_string())?;
    let value = |port: &Port| {
        let value = given.remove(&port.name).ok_or_else(|| format!("there is no `{}`", port.name))?;
        OrtValue::on_device(value, device.clone()).map_err(|reason| format!("the output `{}` is {reason}", port.name))
    };
    outputs.iter().map(value).collect()
}

impl DeviceBound {
    /// Binds inputs, and the memory of the outputs that a first run gives: each run then reads and writes the same addresses.
    pub(super) fn new(
        session: &mut Session,
        device: &Arc<DeviceMemory>,
        ports: [&[Port]; 2],
        inputs: Vec<OrtValue>,
    ) -> Result<Self, String> {
        let message = |e: ort::Error| e.to_string();
        let mut binding = binding(session, device, ports, &inputs.iter().collect::<Vec<_>>()).map_err(message)?;
        let mut outputs = ran(session, device, ports[1], &binding)?;
        for (port, output) in ports[1].iter().zip(&mut outputs) {
            if output.is_on_device() {
                binding.bind_output(&*port.name, output.inner_mut()).map_err(message)?;
            }
        }
        let mut unsynchronized = RunOptions::new().map_err(message)?;
        unsynchronized.disable_device_sync().map_err(message)?;
        Ok(Self { binding, unsynchronized, inputs, outputs, host: None, device: device.clone() })
    }

    /// Runs once, to the end.
    pub(super) fn run(&self, session: &mut Session) -> Result<(), ort::Error> {
        session.run_binding(&self.binding).map(drop)
    }

    /// Runs once and takes the times of the device, where it has a clock; with `transfers` the inputs are copied to the device in
    /// front of the run, and the outputs to the host after it.
    pub(super) fn time(&mut self, session: &mut Session, transfers: bool) -> Result<Option<DeviceTimes>, String> {
        let message = |e: DriverError| e.to_string();
        if transfers {
            self.make_copies().map_err(message)?;
        }
        let begin = self.device.event().map_err(message)?;
        if transfers {
            self.send().map_err(message)?;
        }
        let taken = self.device.event().map_err(message)?;
        let start = Instant::now();
        let ran = session.run_binding_with_options(&self.binding, &self.unsynchronized).map(drop);
        ran.map_err(|e| e.to_string())?;
        let enqueue = start.elapsed();
        let computed = self.device.event().map_err(message)?;
        if transfers {
            self.receive().map_err(message)?;
        }
        let end = self.device.event().map_err(message)?;
        self.device.wait().map_err(message)?;
        let [Some(begin), Some(taken), Some(computed), Some(end)] = [begin, taken, computed, end] else {
            return Ok(None);
        };
        let between = |a: &CudaEvent, b: &CudaEvent| elapsed(a, b).map_err(message);
        let of_transfers = |time: Result<Duration, String>| if transfers { time.map(Some) } else { Ok(None) };
        Ok(Some(DeviceTimes {
            enqueue,
            compute: between(&taken, &computed)?,
            to_device: of_transfers(between(&begin, &taken))?,
            to_host: of_transfers(between(&computed, &end))?,
            graph: false,
        }))
    }

    /// Makes the copies of inputs and the room for outputs in the host's memory, once.
    fn make_copies(&mut self) -> Result<(), DriverError> {
        if self.host.is_none() {
            let room = |values: &[OrtValue]| values.iter().map(|value| vec![0; value.bytes()]).collect::<Vec<_>>();
            let (mut inputs, outputs) = (room(&self.inputs), room(&self.outputs));
            for (value, bytes) in self.inputs.iter().zip(&mut inputs).filter(|(value, _)| value.is_on_device()) {
                self.device.read(value, bytes)?;
            }
            self.device.wait()?;
            self.host = Some([inputs, outputs]);
        }
        Ok(())
    }

    /// Copies the inputs to the device.
    fn send(&self) -> Result<(), DriverError> {
        let inputs = self.host.iter().flat_map(|[inputs, _]| inputs);
        for (value, bytes) in self.inputs.iter().zip(inputs).filter(|(value, _)| value.is_on_device()) {
            self.device.write(value, bytes)?;
        }
        Ok(())
    }

    /// Copies the outputs to the host.
    fn receive(&mut self) -> Result<(), DriverError> {
        let outputs = self.host.iter_mut().flat_map(|[_, outputs]| outputs);
        for (value, bytes) in self.outputs.iter().zip(outputs).filter(|(value, _)| value.is_on_device()) {
            self.device.read(value, bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use planish_onnx::proto::GraphProto;
    use planish_testing::onnx;
    use prost::Message;

    use super::*;
    use crate::find::Search;
    use crate::ort::device::Copies;
    use crate::ort::session::{File, OrtSession};
    use crate::ort::{LIBRARY, OrtOptions, Provider, library};
    use crate::{RuntimeValue, Session as _};

    /// A cache that grows by what is new, and twice what is new: `present = past, new` and `y = new + new`.
    fn write_model(path: &Path) {
        let nodes = vec![
            onnx::node("present = Concat(past, new)", vec![onnx::int("axis", 2)]),
            onnx::node("y = Add(new, new)", Vec::new()),
        ];
        let keys = |name: &str, length: &str| onnx::f32(name, &format!("b,2,{length},3"));
        let graph = onnx::graph(vec![keys("past", "p"), keys("new", "n")], Vec::new(), nodes, &[]);
        let graph = GraphProto { output: vec![keys("present", "t"), keys("y", "n")], ..graph };
        std::fs::write(path, onnx::model(17, graph).encode_to_vec()).unwrap();
    }

    /// A session that has its values in the host's memory as others have them on a device, and a plain one.
    fn sessions() -> [OrtSession; 2] {
        let loaded = library::load(&Search::of_process(&LIBRARY, None)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        write_model(&path);
        let file = File { path: &path, interface: None, profile: None };
        let session = || OrtSession::load(&loaded.environment, Provider::Cpu, file, 1, OrtOptions::default()).unwrap();
        [session().on_device(Copies::Host), session()]
    }

    fn keys(batch: usize, length: usize, from: u16) -> Tensor {
        let count = u16::try_from(batch * 2 * length * 3).unwrap();
        let elements = (from..from + count).map(f32::from).collect::<Vec<_>>();
        Tensor::new(vec![batch, 2, length, 3], elements).unwrap()
    }

    #[test]
    fn values_stay_on_the_device_from_step_to_step() {
        let [mut on_device, mut plain] = sessions();
        // No keys yet: a tensor without elements.
        let mut pasts = [RuntimeValue::from(keys(2, 0, 0)), RuntimeValue::from(keys(2, 0, 0))];
        for step in 0..3u16 {
            let new = RuntimeValue::from(keys(2, 2, 100 * step));
            let mut outputs = [&mut on_device, &mut plain].into_iter().zip(&pasts).map(|(session, past)| {
                session.run_values(&[("new", &new), ("past", past)]).unwrap().into_iter().map(|(_, value)| value)
            });
            let [mut given, mut expected] = [outputs.next().unwrap(), outputs.next().unwrap()];
            drop(outputs);
            pasts = [given.next().unwrap(), expected.next().unwrap()];
            let [y, expected_y] = [given.next().unwrap(), expected.next().unwrap()];
            assert!(y.as_f32().is_none() && pasts[0].as_f32().is_none(), "the host cannot read a device");
            assert_eq!(y.to_tensor(), expected_y.to_tensor());
            assert_eq!(pasts[0].to_tensor(), pasts[1].to_tensor());
            // Beams take rows, and a prompt that was read ahead is shortened.
            let kept = 2 * usize::from(step) + 1;
            pasts = pasts.map(|past| past.take_rows(&[1, 1]).unwrap().first_keys(kept + 1).unwrap());
            assert_eq!(pasts[0].to_tensor(), pasts[1].to_tensor());
            assert!(pasts[0].take_rows(&[2]).is_none());
        }
    }

    #[test]
    fn runs_as_bound_read_and_write_the_same_memory() {
        let [mut on_device, mut plain] = sessions();
        let inputs = [("past", keys(1, 2, 7)), ("new", keys(1, 3, 50))];
        let expected = plain.run(&inputs).unwrap();
        let given = on_device.run(&inputs).unwrap();
        assert_eq!(given, expected);
        let device = on_device.device().unwrap();
        let ports = [on_device.inputs().to_vec(), on_device.outputs().to_vec()];
        let values = ports[0].iter().map(|port| {
            let (_, tensor) = inputs.iter().find(|(name, _)| *name == port.name).unwrap();
            input(&device, port, tensor).unwrap()
        });
        let values = values.collect();
        let session = on_device.inner_mut();
        let mut bound = DeviceBound::new(session, &device, [&ports[0], &ports[1]], values).unwrap();
        let addresses = |bound: &DeviceBound| bound.outputs.iter().map(OrtValue::address).collect::<Vec<_>>();
        let before = addresses(&bound);
        let poison = |bound: &DeviceBound| {
            bound.outputs.iter().for_each(|output| device.write(output, &vec![0xff; output.bytes()]).unwrap());
        };
        let outputs = |bound: &DeviceBound| bound.outputs.iter().map(|of| of.to_tensor().unwrap()).collect::<Vec<_>>();
        let expected = expected.into_iter().map(|(_, tensor)| tensor).collect::<Vec<_>>();
        for _ in 0..2 {
            poison(&bound);
            bound.run(session).unwrap();
            assert_eq!(outputs(&bound), expected);
        }
        // The host's copies are taken once: what is sent again is what was bound.
        poison(&bound);
        assert_eq!(bound.time(session, true).unwrap(), None, "the device of tests has no clock");
        bound.inputs.iter().for_each(|input| device.write(input, &vec![0; input.bytes()]).unwrap());
        assert_eq!(bound.time(session, true).unwrap(), None);
        assert_eq!((outputs(&bound), addresses(&bound)), (expected.clone(), before));
        let received = &bound.host.as_ref().unwrap()[1];
        assert_eq!(*received, expected.iter().map(Tensor::to_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn sessions_on_a_device_bind_as_others() {
        let [mut on_device, _] = sessions();
        assert!(on_device.run_bound().unwrap_err().to_string().contains("no inputs are bound"));
        on_device.bind(&[("past", keys(1, 2, 0)), ("new", keys(1, 1, 0))]).unwrap();
        on_device.run_bound().unwrap();
        on_device.time_bound(true).unwrap();
        let error = on_device.bind(&[("past", keys(2, 2, 0)), ("new", keys(1, 1, 0))]).unwrap_err().to_string();
        assert!(error.contains("Concat"), "{error}");
        assert!(on_device.run_bound().unwrap_err().to_string().contains("no inputs are bound"));
    }
}
