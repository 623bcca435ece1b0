//! The GPU's clocks, power and temperature, by NVIDIA's management library (NVML), which comes with the driver. It is loaded when
//! it is first asked for; where it is missing there are no such figures, and nothing fails.

use std::fmt;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};

use crate::driver;

/// The library's name. The one without a version belongs to the CUDA toolkit.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// What limits the clocks, where that is no setting of the user and no lack of work.
const THROTTLING: [(ThrottleReasons, &str); 6] = [
    (ThrottleReasons::SW_POWER_CAP, "power cap"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal slowdown"),
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hardware thermal slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
    (ThrottleReasons::SYNC_BOOST, "another GPU of its sync boost group"),
];

/// A GPU, as far as it does not change while it runs. What a GPU does not tell is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuDescription {
    /// Its name, e.g. `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// The version of the driver.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// The highest clock of the multiprocessors, in MHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_sm_mhz: Option<u32>,
    /// The highest clock of the memory, in MHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_memory_mhz: Option<u32>,
    /// The power that it may draw, in watts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub power_limit_w: Option<f64>,
}

impl fmt::Display for GpuDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU: {}", self.name)?;
        self.driver.iter().try_for_each(|driver| write!(f, ", driver {driver}"))?;
        self.max_sm_mhz.iter().try_for_each(|mhz| write!(f, ", at most {mhz} MHz"))?;
        self.max_memory_mhz.iter().try_for_each(|mhz| write!(f, ", memory {mhz} MHz"))?;
        self.power_limit_w.iter().try_for_each(|watts| write!(f, ", at most {watts:.0} W"))
    }
}

/// What a GPU does at one time. What it does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuState {
    /// The clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// The clock of the memory, in MHz.
    pub memory_mhz: Option<u32>,
    /// The temperature, in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// The power that it draws, in watts.
    pub power_w: Option<f64>,
    /// What keeps the clocks down.
    pub throttled: Vec<&'static str>,
}

/// Reads the first GPU of CUDA.
pub struct GpuMonitor {
    nvml: Nvml,
    /// CUDA and the library count GPUs in orders of their own.
    uuid: String,
}

impl GpuMonitor {
    /// `None` where there is no driver, no GPU, or no library that knows it.
    #[must_use]
    pub fn open() -> Option<Self> {
        let uuid = driver::first_uuid()?;
        let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init().ok()?;
        let monitor = Self { nvml, uuid };
        monitor.device().is_some().then_some(monitor)
    }

    fn device(&self) -> Option<Device<'_>> {
        self.nvml.device_by_uuid(self.uuid.as_str()).ok()
    }

    /// What it is.
    #[must_use]
    pub fn description(&self) -> Option<GpuDescription> {
        let device = self.device()?;
        Some(GpuDescription {
            name: device.name().ok()?,
            driver: self.nvml.sys_driver_version().ok(),
            max_sm_mhz: device.max_clock_info(Clock::SM).ok(),
            max_memory_mhz: device.max_clock_info(Clock::Memory).ok(),
            power_limit_w: device.enforced_power_limit().ok().map(watts),
        })
    }

    /// What it does now.
    #[must_use]
    pub fn state(&self) -> GpuState {
        let Some(device) = self.device() else { return GpuState::default() };
        let reasons = device.current_throttle_reasons().unwrap_or(ThrottleReasons::NONE);
        GpuState {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            memory_mhz: device.clock_info(Clock::Memory).ok(),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            power_w: device.power_usage().ok().map(watts),
            throttled: THROTTLING
                .iter()
                .filter(|(reason, _)| reasons.contains(*reason))
                .map(|(_, name)| *name)
                .collect(),
        }
    }

    /// The energy that it has taken since the driver was loaded, in joules. GPUs before Volta do not count it.
    #[must_use]
    pub fn joules(&self) -> Option<f64> {
        self.device()?.total_energy_consumption().ok().map(|millijoules| millijoules as f64 / 1e3)
    }
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}
