//! Accelerators by their data sheets.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::Split;

/// An accelerator by its data sheet, without sparsity. Names that have no rates are memory alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Device {
    /// Its name on the command line.
    pub name: String,
    /// Its memory in bytes, of which data sheets count 10^9 to a GB.
    pub memory: u64,
    /// What is known of its speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
}

/// How fast an accelerator is at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Bytes of memory a second, in units of 10^9.
    pub memory_gb_s: f64,
    /// Operations a second of products of float16 and bfloat16 that are added in float32, in units of 10^12.
    pub half_tflops: f64,
    /// Bytes a second to other accelerators in one direction, in units of 10^9: half of what data sheets say of NVLink and PCIe.
    pub link_gb_s: f64,
}

/// A row of the table: name, memory in GB, memory bandwidth in GB/s, TFLOPS, link in one direction in GB/s.
type Row = (&'static str, u64, f64, f64, f64);

/// Every accelerator that is known. docs/pipeline.md has the sources.
const KNOWN: &[Row] = &[
    ("A100-40GB", 40, 1555.0, 312.0, 300.0),
    ("A100-80GB", 80, 2039.0, 312.0, 300.0),
    ("H100", 80, 3350.0, 989.0, 450.0),
    ("H200", 141, 4800.0, 989.0, 450.0),
    ("B200", 180, 8000.0, 2250.0, 900.0),
    ("L4", 24, 300.0, 121.0, 32.0),
    ("L40S", 48, 864.0, 362.0, 32.0),
    ("RTX4090", 24, 1008.0, 165.2, 32.0),
];

/// The most devices that are planned for.
const MOST: usize = 1024;

/// Several accelerators of one kind: `8xH100`, or `4x48GB` where only their memory is known. `32xH200:tp=8,pp=4` also says how a
/// model is divided among them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Devices {
    /// How many.
    pub count: usize,
    /// Which.
    #[serde(flatten)]
    pub device: Device,
    /// How the model is divided, where the user says so.
    #[serde(skip)]
    pub split: Option<Split>,
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "expected a number, `x` and a device, such as 8xH100 or 4x48GB".to_owned();
        let (devices, settings) = text.split_once(':').map_or((text, None), |(devices, of)| (devices, Some(of)));
        let (count, name) = devices.split_once(['x', 'X']).ok_or_else(form)?;
        let count: usize = count.parse().map_err(|_| form())?;
        if !(1..=MOST).contains(&count) {
            return Err(format!("there are 1 to {MOST} devices"));
        }
        let device = device(name)?;
        let split = settings.map(|settings| Split::read(settings, count)).transpose()?;
        Ok(Self { count, device, split })
    }
}

fn device(name: &str) -> Result<Device, String> {
    const GB: u64 = 1_000_000_000;
    if let Some((name, memory, memory_gb_s, half_tflops, link_gb_s)) =
        KNOWN.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name))
    {
        let rates = Some(Rates { memory_gb_s: *memory_gb_s, half_tflops: *half_tflops, link_gb_s: *link_gb_s });
        return Ok(Device { name: (*name).to_owned(), memory: memory * GB, rates });
    }
    let size = name.strip_suffix("GB").and_then(|size| size.parse::<u64>().ok()).filter(|size| *size > 0);
    match size.and_then(|size| size.checked_mul(GB)) {
        Some(memory) => Ok(Device { name: name.to_owned(), memory, rates: None }),
        None => {
            let names: Vec<&str> = KNOWN.iter().map(|(name, ..)| *name).collect();
            Err(format!("`{name}` is not among the known devices, {}, and no memory such as 48GB", names.join(", ")))
        }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.count, self.device.name)?;
        match self.split {
            Some(Split { tensor_parallel, pipeline }) => write!(f, ":tp={tensor_parallel},pp={pipeline}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_by_name_or_by_memory() {
        let read = |text: &str| text.parse::<Devices>();
        let h100 = read("8xh100").unwrap();
        assert_eq!((h100.count, h100.device.memory, h100.to_string().as_str()), (8, 80_000_000_000, "8xH100"));
        assert_eq!(read("32xH200:tp=8").unwrap().to_string(), "32xH200:tp=8,pp=4");
        let memory = read("4x48GB").unwrap();
        assert_eq!((memory.device.memory, memory.device.rates), (48_000_000_000, None));
        for (text, part) in [
            ("H100", "expected a number, `x` and a device"),
            ("0xH100", "1 to 1024"),
            ("2000xH100", "1 to 1024"),
            ("8xH900", "`H900` is not among the known devices, A100-40GB, A100-80GB, H100"),
            ("8x0GB", "`0GB` is not among"),
            ("8xH100:tp=3", "8 devices do not divide by tp=3"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
