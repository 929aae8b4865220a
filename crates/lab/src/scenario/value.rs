//! Values as scenario files write them, read with errors that say what was expected.

use everwarm_inflight::Limits;
use everwarm_units::{Bytes, Span};
use everwarm_workload::Kernel;
use serde::de::{
    Deserialize, Deserializer, Error, MapAccess, Visitor, value::MapAccessDeserializer,
};
use std::fmt::{Formatter, Result as Fmt};

/// A duration with its unit: `"8 ms"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duration(pub Span);

/// A whole number of at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count(pub u32);

/// How many command buffers are in flight: a number of at least 1, `"all"`, or what the in-flight helper finds
/// (`"auto"` or its limits).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Depth {
    /// So many; `usize::MAX` for all.
    Fixed(usize),
    /// As many as hide the host's work, within limits.
    Auto(Limits),
}

/// When counters are read: `"off"` or a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Telemetry(pub Option<Span>);

/// A p-state to hold: its number, or `"off"` for none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pin(pub Option<u8>);

/// What one command buffer does, before a device gives it a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// An FMA chain with this execution time at the device's top clock.
    FmaTime {
        /// Without the fixed cost of a command buffer.
        time: Span,
        /// Threads side by side.
        threads: u32,
    },
    /// A kernel whose size no device changes.
    Exact(Kernel),
}

impl Work {
    /// The work of `n` of these in one command buffer; `None` where no kernel is that.
    pub fn times(self, n: u32) -> Option<Work> {
        Some(match self {
            Work::FmaTime { time, threads } => Work::FmaTime { time: time * u64::from(n), threads },
            Work::Exact(kernel) => Work::Exact(match kernel {
                Kernel::Empty => kernel,
                Kernel::Fma { iterations, threads } => {
                    Kernel::Fma { iterations: iterations.checked_mul(n)?, threads }
                }
                Kernel::Stream { bytes } => {
                    Kernel::Stream { bytes: bytes.checked_mul(u64::from(n))? }
                }
                Kernel::Matmul { .. } | Kernel::Modelled { .. } => {
                    return (n == 1).then_some(self);
                }
            }),
        })
    }
}

const KERNELS: &str = "alu, stream, touch, matmul, hold, empty";

/// Traffic of the streaming read: 65,536 threads of 32 loads of 16 bytes. Source: study 2.
const STREAM_BYTES: u64 = 65_536 * 32 * 16;

/// Deserializes through one visitor, whatever the value's type.
macro_rules! from_any {
    ($name:ty, $expecting:expr, { $($method:item)+ }) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct V;
                impl<'de> Visitor<'de> for V {
                    type Value = $name;
                    fn expecting(&self, f: &mut Formatter) -> Fmt { f.write_str($expecting) }
                    $($method)+
                }
                d.deserialize_any(V)
            }
        }
    };
}

/// A whole number of at least 1 that fits.
fn count<E: Error>(n: i64) -> Result<u32, E> {
    match u32::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(E::custom(format!("{n} is out of range; expected a whole number of at least 1"))),
    }
}

from_any!(Duration, "a duration such as \"8 ms\"", {
    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        text.parse().map(Duration).map_err(E::custom)
    }
    fn visit_i64<E: Error>(self, n: i64) -> Result<Duration, E> {
        match n {
            0 => Ok(Duration(Span::ZERO)),
            n => Err(E::custom(format!("{n} has no unit; expected a duration such as \"8 ms\""))),
        }
    }
});

from_any!(Count, "a whole number of at least 1", {
    fn visit_i64<E: Error>(self, n: i64) -> Result<Count, E> {
        count(n).map(Count)
    }
});

from_any!(
    Depth,
    "a whole number of at least 1, \"all\", \"auto\" or its limits such as { gap = \"0.5 ms\" }",
    {
        fn visit_i64<E: Error>(self, n: i64) -> Result<Depth, E> {
            count(n).map(|n| Depth::Fixed(n as usize))
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Depth, E> {
            match text {
                "all" => Ok(Depth::Fixed(usize::MAX)),
                "auto" => Auto::default().limits().map(Depth::Auto),
                other => Err(E::custom(format!(
                    "`{other}` is no depth; expected a whole number of at least 1, \"all\" or \"auto\""
                ))),
            }
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Depth, A::Error> {
            Auto::deserialize(MapAccessDeserializer::new(map))?.limits().map(Depth::Auto)
        }
    }
);

/// Limits of the in-flight helper; what is left out is its default.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Auto {
    gap: Option<Duration>,
    most: Option<Count>,
    latency: Option<Duration>,
    chunk: Option<Count>,
    /// What selectors call it.
    #[serde(rename = "name")]
    _name: Option<String>,
}

impl Auto {
    /// The gap that an M2's controller takes for work. Source: study 1.
    const GAP: Span = Span::us(500);

    fn limits<E: Error>(&self) -> Result<Limits, E> {
        let gap_max = self.gap.map_or(Self::GAP, |gap| gap.0);
        if gap_max.is_zero() {
            return Err(E::custom("a gap of 0 can't be kept; expected e.g. \"0.5 ms\""));
        }
        let usual = Limits::for_gap(gap_max);
        Ok(Limits {
            in_flight_max: self.most.map_or(usual.in_flight_max, |n| n.0 as usize),
            latency_max: self.latency.map_or(usual.latency_max, |d| d.0),
            chunk_max: self.chunk.map_or(usual.chunk_max, |n| n.0),
            ..usual
        })
    }
}

from_any!(Telemetry, "\"off\" or a period such as \"100 ms\"", {
    fn visit_str<E: Error>(self, text: &str) -> Result<Telemetry, E> {
        match text {
            "off" => Ok(Telemetry(None)),
            text => match text.parse::<Span>() {
                Ok(Span::ZERO) => Err(E::custom(
                    "the telemetry period is 0; expected \"off\" or a period such as \"100 ms\"",
                )),
                Ok(period) => Ok(Telemetry(Some(period))),
                Err(error) => Err(E::custom(format!("{error} (or \"off\")"))),
            },
        }
    }
});

from_any!(Pin, "the number of a p-state, or \"off\"", {
    fn visit_i64<E: Error>(self, n: i64) -> Result<Pin, E> {
        match u8::try_from(n) {
            Ok(n) if n > 0 => Ok(Pin(Some(n))),
            _ => Err(E::custom(format!("{n} is no p-state; expected 1 or more, or \"off\""))),
        }
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Pin, E> {
        match text {
            "off" => Ok(Pin(None)),
            other => Err(E::custom(format!(
                "`{other}` is no p-state; expected a number of 1 or more, or \"off\""
            ))),
        }
    }
});

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Alu {
    time: Option<Duration>,
    iterations: Option<Count>,
    threads: Option<Count>,
}

impl Alu {
    fn work<E: Error>(&self) -> Result<Work, E> {
        let threads = self.threads.map_or(Kernel::FMA_THREADS, |n| n.0);
        match (self.time, self.iterations) {
            (Some(Duration(time)), None) => Ok(Work::FmaTime { time, threads }),
            (None, Some(Count(iterations))) => Ok(Work::Exact(Kernel::Fma { iterations, threads })),
            _ => Err(E::custom("alu needs either `time` or `iterations`")),
        }
    }
}

/// The value of `alu`.
struct AluWork(Work);

from_any!(AluWork, "an execution time such as \"0.58 ms\", or { iterations, threads }", {
    fn visit_str<E: Error>(self, text: &str) -> Result<AluWork, E> {
        let time = Some(Duration(text.parse().map_err(E::custom)?));
        Alu { time, iterations: None, threads: None }.work().map(AluWork)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<AluWork, A::Error> {
        Alu::deserialize(MapAccessDeserializer::new(map))?.work().map(AluWork)
    }
});

/// The value of `stream`.
struct Traffic(u64);

from_any!(Traffic, "true, or an amount of data such as \"33.6 MB\"", {
    fn visit_bool<E: Error>(self, on: bool) -> Result<Traffic, E> {
        if on { Ok(Traffic(STREAM_BYTES)) } else { Err(E::custom("stream = false is no kernel")) }
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Traffic, E> {
        let bytes: Bytes = text.parse().map_err(E::custom)?;
        match bytes.as_b() {
            b if b >= 1.0 => Ok(Traffic(b as u64)),
            _ => Err(E::custom(format!("`{text}` is nothing to read; expected at least 1 B"))),
        }
    }
});

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkDoc {
    alu: Option<AluWork>,
    stream: Option<Traffic>,
    touch: Option<Traffic>,
    matmul: Option<Count>,
    hold: Option<Duration>,
    empty: Option<bool>,
    /// What selectors call it.
    #[serde(rename = "name")]
    _name: Option<String>,
}

/// A read of so much memory that is all wired while it runs.
fn touch(bytes: f64) -> Kernel {
    Kernel::Modelled { flops: 0.0, bytes, resident: bytes }
}

impl WorkDoc {
    fn work<E: Error>(self) -> Result<Work, E> {
        let hold = |d: Duration| Work::FmaTime { time: d.0, threads: Kernel::GROUP_THREADS };
        let named = [
            self.alu.map(|alu| alu.0),
            self.stream.map(|traffic| Work::Exact(Kernel::Stream { bytes: traffic.0 })),
            self.touch.map(|traffic| Work::Exact(touch(traffic.0 as f64))),
            self.matmul.map(|n| Work::Exact(Kernel::Matmul { n: n.0 })),
            self.hold.map(hold),
            self.empty.filter(|on| *on).map(|_| Work::Exact(Kernel::Empty)),
        ];
        let mut works = named.into_iter().flatten();
        match (works.next(), works.next()) {
            (Some(work), None) => Ok(work),
            _ => Err(E::custom(format!("a kernel is exactly one of {KERNELS}"))),
        }
    }
}

from_any!(Work, "a kernel such as { alu = \"0.58 ms\" }", {
    fn visit_str<E: Error>(self, text: &str) -> Result<Work, E> {
        match text {
            "empty" => Ok(Work::Exact(Kernel::Empty)),
            "stream" => Ok(Work::Exact(Kernel::Stream { bytes: STREAM_BYTES })),
            other => Err(E::custom(format!(
                "unknown kernel `{other}`; expected \"empty\", \"stream\" or a table with one of {KERNELS}"
            ))),
        }
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Work, A::Error> {
        WorkDoc::deserialize(MapAccessDeserializer::new(map))?.work()
    }
});
