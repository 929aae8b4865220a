//! Units of results: what a metric yields, and the unit that a claim wants it in.

/// What kind of quantity a value is; values are kept in its SI unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Floating-point operations a second.
    Flops,
    /// Bytes a second.
    Bandwidth,
    /// Seconds.
    Time,
    /// A p-state.
    PState,
    /// A share, a ratio or a number of things.
    One,
    /// Hertz.
    Frequency,
    /// Watts.
    Power,
    /// Joules.
    Energy,
}

/// A unit by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// As written.
    pub name: &'static str,
    /// Its dimension.
    pub dimension: Dimension,
    /// Its size in the SI unit.
    pub size: f64,
}

/// All units; the first of a dimension is the one used where none is named.
const UNITS: &[Unit] = &[
    unit("GFLOP/s", Dimension::Flops, 1e9),
    unit("MFLOP/s", Dimension::Flops, 1e6),
    unit("TFLOP/s", Dimension::Flops, 1e12),
    unit("GB/s", Dimension::Bandwidth, 1e9),
    unit("MB/s", Dimension::Bandwidth, 1e6),
    unit("TB/s", Dimension::Bandwidth, 1e12),
    unit("ms", Dimension::Time, 1e-3),
    unit("ns", Dimension::Time, 1e-9),
    unit("us", Dimension::Time, 1e-6),
    unit("s", Dimension::Time, 1.0),
    unit("min", Dimension::Time, 60.0),
    unit("P", Dimension::PState, 1.0),
    unit("1", Dimension::One, 1.0),
    unit("%", Dimension::One, 0.01),
    unit("MHz", Dimension::Frequency, 1e6),
    unit("GHz", Dimension::Frequency, 1e9),
    unit("Hz", Dimension::Frequency, 1.0),
    unit("W", Dimension::Power, 1.0),
    unit("mW", Dimension::Power, 1e-3),
    unit("J", Dimension::Energy, 1.0),
    unit("mJ", Dimension::Energy, 1e-3),
    unit("Wh", Dimension::Energy, 3600.0),
];

const fn unit(name: &'static str, dimension: Dimension, size: f64) -> Unit {
    Unit { name, dimension, size }
}

impl Unit {
    /// The unit of that name.
    pub fn named(name: &str) -> Result<Unit, String> {
        UNITS.iter().find(|unit| unit.name == name).copied().ok_or_else(|| {
            let known: Vec<_> = UNITS.iter().map(|unit| unit.name).collect();
            format!("unknown unit `{name}`; expected one of {}", known.join(", "))
        })
    }

    /// The unit used for a dimension where none is named.
    pub fn of(dimension: Dimension) -> Unit {
        *UNITS.iter().find(|unit| unit.dimension == dimension).expect("each dimension has a unit")
    }
}
