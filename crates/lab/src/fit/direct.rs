//! Values of a chip file that findings give without a search.

use everwarm_dvfs::Chip;
use everwarm_fit::{Finding, Findings, Kernels};
use toml::{Table, Value};

/// A key, its value, and what is said of it in the file.
pub(super) type Set = (String, Value, String);

/// Everything that `findings` give, for a chip that is otherwise like `base`. `top_clock` in MHz.
pub(super) fn direct(
    findings: &Findings,
    kernels: &Kernels,
    base: &Chip,
    top_clock: Option<f64>,
) -> Vec<Set> {
    let mut set = Vec::new();
    let assumed = base.clock(base.top()).as_mhz();
    let top = top_clock.unwrap_or(assumed);
    states(findings, base, top, top_clock.is_none(), &mut set);
    for (name, key) in [
        ("idle-off", "controller.idle_off_delay"),
        ("control period", "controller.sample_period"),
        ("commit to start", "host.commit_to_start"),
        ("gap between queued buffers", "host.buffer_gap"),
        ("end to host", "host.completion_to_host"),
        ("deep idle stall", "wake.deep_idle_stall"),
        ("deep idle", "wake.deep_idle_after"),
    ] {
        if let Some(finding) = findings.get(name) {
            set.push((key.into(), ms(finding.value.max(0.0)), note(finding, "ms")));
        }
    }
    if let Some(finding) = findings.get("memory path") {
        // The overhead of a buffer passes before it asks for memory.
        let value = ms(finding.value.max(0.0) + kernels.overhead);
        set.push(("wake.memory_ready".into(), value, note(finding, "ms, less the overhead")));
    }
    wake(findings, &mut set);
    let cycles_a_ms = top * 1e3;
    let mut put = |key: &str, value: Value| set.push((key.into(), value, "fitted".into()));
    if let Some(rate) = kernels.flops_per_ms() {
        put("kernels.fma_threads_per_cycle", (rate / 4.0 / cycles_a_ms).into());
        put("kernels.overhead", ms(kernels.fixed));
        let cycles = (kernels.overhead - kernels.fixed).max(0.0) * cycles_a_ms;
        put("kernels.overhead_cycles", format!("{cycles:.1} cycles").into());
    }
    if let Some(rate) = kernels.bytes_per_ms() {
        put("kernels.bandwidth", format!("{:.4} GB/s", rate / 1e6).into());
    }
    set
}

fn ms(value: f64) -> Value {
    format!("{value:.5} ms").into()
}

fn note(finding: &Finding, unit: &str) -> String {
    format!("fitted [{:.4} .. {:.4}] {unit}", finding.lo, finding.hi)
}

/// One p-state for each clock that was seen; voltage and limit by the base chip's at that share of
/// its top clock.
fn states(findings: &Findings, base: &Chip, top: f64, assumed: bool, set: &mut Vec<Set>) {
    let clocks: Vec<f64> =
        (1..).map_while(|n| findings.get(&format!("clock {n}"))).map(|f| f.value).collect();
    if clocks.is_empty() {
        return;
    }
    let base_top = base.clock(base.top()).as_mhz();
    let state = |share: &f64| {
        let near = base.pstates.iter().min_by(|a, b| {
            let far =
                |p: &everwarm_dvfs::OperatingPoint| (p.clock.as_mhz() / base_top - share).abs();
            far(a).total_cmp(&far(b))
        });
        let near = near.unwrap_or(&base.pstates[0]);
        let mut table = Table::new();
        table.insert("clock".into(), format!("{:.3} MHz", share * top).into());
        table.insert("voltage".into(), near.voltage.to_string().into());
        table.insert("power_limit".into(), near.power_limit.to_string().into());
        Value::Table(table)
    };
    let mut comment = "fitted: plateaus; voltage and limit default".to_owned();
    if assumed {
        comment.push_str(", the top clock too: not identified without --top-clock");
    }
    set.push(("pstates".into(), Value::Array(clocks.iter().map(state).collect()), comment));
    let lowest = "fitted: the lowest clock that was seen; states below it can't be";
    set.push(("controller.base_pstate".into(), 1.into(), lowest.into()));
}

/// The latencies after some idle times.
fn wake(findings: &Findings, set: &mut Vec<Set>) {
    let idle = |name: &str| name.strip_prefix("wake after ")?.strip_suffix(" ms")?.parse().ok();
    let mut all: Vec<(f64, f64)> =
        findings.iter().filter_map(|(name, f)| Some((idle(name)?, f.value))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A list that a person can read: a point for each third of the way to twice the idle time.
    let mut last = 0.0;
    all.retain(|(idle, _)| {
        let keep = *idle >= 1.25 * last;
        last = if keep { *idle } else { last };
        keep
    });
    let entry = |(idle, latency): &(f64, f64)| {
        let mut table = Table::new();
        table.insert("idle".into(), ms(*idle));
        table.insert("latency".into(), ms(latency.max(0.0)));
        Value::Table(table)
    };
    if !all.is_empty() {
        let list = Value::Array(all.iter().map(entry).collect());
        set.push(("wake.start".into(), list, "fitted: medians".into()));
    }
}
