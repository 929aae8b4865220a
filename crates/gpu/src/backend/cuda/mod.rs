//! NVIDIA GPUs through the CUDA driver: `cuda:0`, `cuda:1`, …
//!
//! Both of NVIDIA's libraries are loaded when they are first asked for, so one binary starts
//! anywhere. Kernels are PTX (`kernels.ptx`), compiled by the driver. The management library tells
//! clocks, power and energy (`nvml.rs`); without it the device works and its counters are `None`.
//! Ordinals are CUDA's, under CUDA_VISIBLE_DEVICES too. Listing devices makes no context.
//!
//! | file | what |
//! | --- | --- |
//! | `driver.rs` | the driver's calls |
//! | `shared.rs` | what the handles of a process share: context, kernels, memory |
//! | `lane.rs`, `stamps.rs` | queues, and what command buffers say of themselves |
//! | `timer.rs` | the GPU's timer beside the host's clock |
//! | `nvml.rs` | telemetry |
//! | `handle.rs` | the trait `Backend` |
//! | `yardstick.rs` | the driver without this backend, to measure its overhead |

mod driver;
mod handle;
mod lane;
mod nvml;
mod shared;
mod stamps;
mod timer;
pub mod yardstick;

use super::{Entry, Found};
use crate::calibrate::Once;
use crate::{Backend, Counters, Error, FmaRates, Monotonic, Telemetry, Timebase};
use driver::Driver;
use everwarm_units::Span;
pub(super) use nvml::Gauge;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

/// The line in the table of backends.
pub const ENTRY: Entry = Entry {
    prefix: "cuda",
    about: "an NVIDIA GPU: cuda:0",
    hardware: true,
    open,
    watch: |id| Ok(Box::new(Watch::open(id)?)),
    list,
};

/// Where NVIDIA's libraries are.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// The CUDA driver.
    pub driver: PathBuf,
    /// The management library, NVML.
    pub management: PathBuf,
}

impl Default for Libraries {
    /// By the names that every installation has, wherever the system looks for libraries.
    fn default() -> Self {
        Libraries { driver: "libcuda.so.1".into(), management: "libnvidia-ml.so.1".into() }
    }
}

static LIBRARIES: OnceLock<Libraries> = OnceLock::new();

/// Names other libraries than the installed ones, for this process; false if it is too late.
pub fn use_libraries(libraries: Libraries) -> bool {
    LIBRARIES.set(libraries).is_ok()
}

fn libraries() -> &'static Libraries {
    LIBRARIES.get_or_init(Libraries::default)
}

/// The driver, loaded and awake.
fn driver() -> Result<&'static Driver, String> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    static FIRST: Mutex<()> = Mutex::new(());
    let _first = FIRST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    // What fails is tried again the next time: a driver may come while a proxy runs.
    let driver = Driver::load(&libraries().driver).map_err(|why| format!("no CUDA: {why}"))?;
    driver.init().map_err(|refusal| format!("no CUDA: {refusal}"))?;
    Ok(DRIVER.get_or_init(|| driver))
}

fn list() -> Vec<Found> {
    let found = driver().and_then(|driver| {
        let count = device_count(driver)?;
        Ok((0..count).map(|ordinal| look_at(driver, ordinal)).collect())
    });
    found.unwrap_or_else(|why| vec![Found::unusable("cuda:0", why)])
}

/// How many devices the driver has, at least one.
fn device_count(driver: &Driver) -> Result<i32, String> {
    match driver.device_count() {
        Ok(count) if count > 0 => Ok(count),
        Ok(_) => Err("no CUDA: the driver has no device".to_owned()),
        Err(refusal) => Err(format!("no CUDA: {refusal}")),
    }
}

/// A device as it is listed: what can be told without a context.
fn look_at(driver: &Driver, ordinal: i32) -> Found {
    let id = format!("cuda:{ordinal}");
    match shared::about(driver, ordinal) {
        Err(refusal) => Found::unusable(id, refusal.to_string()),
        Ok(about) => {
            let mut found = Found::usable(id, about.name);
            match gauge_of(driver, ordinal) {
                Ok(gauge) => {
                    let version = nvml::driver_version();
                    found.facts.extend(version.map(|version| ("driver".to_owned(), version)));
                    let power = gauge.power().map(|power| power.to_string());
                    found.facts.extend(power.map(|power| ("power now".to_owned(), power)));
                }
                Err(why) => found.facts.push(("no telemetry".to_owned(), why)),
            }
            found
        }
    }
}

/// The number in an id that names a device there is.
fn ordinal(driver: &Driver, id: &str) -> Result<i32, String> {
    let count = device_count(driver)?;
    let number = super::rest(id).parse().ok().filter(|number| *number >= 0);
    let number = number.ok_or("expected a number, as in cuda:0")?;
    match number < count {
        true => Ok(number),
        false => Err(format!("the driver has {count}, counted from cuda:0")),
    }
}

fn gauge_of(driver: &Driver, ordinal: i32) -> Result<Gauge, String> {
    let device = driver.device(ordinal).map_err(|refusal| refusal.to_string())?;
    let bus_id = driver.device_bus_id(device).map_err(|refusal| refusal.to_string())?;
    let uuid = driver.device_uuid(device).ok();
    Gauge::open(&libraries().management, uuid.as_ref(), &bus_id)
}

/// What the management library tells of the GPU at this place on the bus, whoever drives it.
pub(super) fn gauge_at(bus_id: &str) -> Result<Gauge, String> {
    Gauge::open(&libraries().management, None, bus_id)
}

/// Reads a GPU's telemetry without a context: what it costs when nobody uses it.
struct Watch {
    gauge: Gauge,
    epoch: Monotonic,
}

impl Watch {
    fn open(id: &str) -> Result<Watch, Error> {
        let (driver, ordinal) = device(id)?;
        let silent = |why| Error::Silent { device: id.to_owned(), why };
        let gauge = gauge_of(driver, ordinal).map_err(silent)?;
        Ok(Watch { gauge, epoch: Monotonic::now() })
    }
}

impl Telemetry for Watch {
    fn read(&mut self) -> Result<Counters, Error> {
        Ok(self.gauge.read(Monotonic::now().on_base(self.epoch)))
    }
}

/// Rates, and how fast the timer runs, by ordinal: measured once in a process.
static KNOWN: Once<i32, (FmaRates, Timebase)> = Once::new();

/// The driver, and the ordinal of the device `id`.
fn device(id: &str) -> Result<(&'static Driver, i32), Error> {
    let found = driver().and_then(|driver| Ok((driver, ordinal(driver, id)?)));
    found.map_err(|why| {
        let why = format!("{why}; {}", super::what_exists());
        Error::NoDevice { id: id.to_owned(), why }
    })
}

fn open(id: &str) -> Result<Box<dyn Backend>, Error> {
    let no_device = |why: String| Error::NoDevice { id: id.to_owned(), why };
    let (driver, ordinal) = device(id)?;
    let shared =
        shared::share(driver, ordinal).map_err(|refusal| no_device(refusal.to_string()))?;
    let gauge = gauge_of(driver, ordinal);
    let facts = facts(&shared, &gauge);
    shared.make_current().map_err(|refusal| no_device(refusal.to_string()))?;
    let parts = handle::Parts { id: id.to_owned(), shared, gauge: gauge.ok(), facts };
    let mut handle = handle::Cuda::open(parts).map_err(no_device)?;
    let (rates, timebase) = KNOWN.of(ordinal, || handle.calibrate())?;
    handle.calibrated(rates, timebase)?;
    Ok(Box::new(handle))
}

fn facts(shared: &Arc<shared::Shared>, gauge: &Result<Gauge, String>) -> Vec<(String, String)> {
    let about = &shared.about;
    let ms = |span: Span| format!("{:.1} ms", span.as_ms());
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("CUDA", about.cuda.clone()),
        fact("compute capability", about.capability.clone()),
        fact("multiprocessors", about.multiprocessors.to_string()),
        fact("memory", format!("{:.1} GB", about.memory as f64 / 1e9)),
        fact("L2 cache", format!("{:.1} MB", about.cache as f64 / 1e6)),
        fact("context made in", ms(shared.context_took)),
        fact("kernels compiled in", ms(shared.kernels_took)),
    ];
    match gauge {
        Ok(gauge) => facts.extend(gauge.facts()),
        Err(why) => facts.push(fact("no telemetry", why.clone())),
    }
    facts
}
