//! What the values of a chip may be, beyond what their types hold.

use crate::{Chip, PowerModel};
use everwarm_units::Span;

/// A value that can't be.
pub(crate) struct Wrong {
    /// Keys and indices from the root.
    pub path: Vec<String>,
    value: String,
    expected: String,
}

impl Wrong {
    pub(crate) fn message(&self) -> String {
        format!("`{}` is {}; expected {}", self.path.join("."), self.value, self.expected)
    }
}

fn wrong(path: &str, value: impl ToString, expected: impl Into<String>) -> Wrong {
    Wrong {
        path: path.split('.').map(str::to_owned).collect(),
        value: value.to_string(),
        expected: expected.into(),
    }
}

/// What values may be.
pub(crate) fn check(chip: &Chip) -> Result<(), Wrong> {
    check_identity(chip)?;
    check_pstates(chip)?;
    check_controller(chip)?;
    check_host(chip)?;
    check_wake(chip)?;
    check_power(chip)?;
    check_kernels(chip)
}

fn check_identity(chip: &Chip) -> Result<(), Wrong> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if chip.id.is_empty() || !chip.id.chars().all(plain) {
        let expected = "a short name of letters, digits, `-`, `_` and `.`, such as \"m2\"";
        return Err(wrong("id", format!("{:?}", chip.id), expected));
    }
    if chip.cores.is_some_and(|cores| cores == 0 || cores > 1_000_000) {
        return Err(wrong("cores", chip.cores.unwrap_or(0), "1 to 1000000 cores"));
    }
    match chip.memory_peak {
        Some(peak) => within("memory_peak", peak.as_gb_s(), 1e-3, 1e6, " GB/s"),
        None => Ok(()),
    }
}

fn check_pstates(chip: &Chip) -> Result<(), Wrong> {
    let all = &chip.pstates;
    if all.is_empty() || all.len() > 100 {
        return Err(wrong("pstates", format!("{} entries", all.len()), "1 to 100 p-states"));
    }
    for (n, opp) in all.iter().enumerate() {
        let key = |name: &str| format!("pstates.{n}.{name}");
        let mhz = opp.clock.as_mhz();
        if !(1.0..=1e5).contains(&mhz) {
            return Err(wrong(&key("clock"), opp.clock, "a clock from 1 MHz to 100 GHz"));
        }
        if !(0.01..=10.0).contains(&opp.voltage.as_v()) {
            return Err(wrong(&key("voltage"), opp.voltage, "a voltage from 10 mV to 10 V"));
        }
        if !(1e-3..=1e4).contains(&opp.power_limit.as_w()) {
            return Err(wrong(&key("power_limit"), opp.power_limit, "a power from 1 mW to 10 kW"));
        }
        let Some(before) = n.checked_sub(1).map(|m| all[m]) else { continue };
        if opp.clock <= before.clock {
            let expected = format!(
                "p-states in ascending order: more than {} of the one before",
                before.clock
            );
            return Err(wrong(&key("clock"), opp.clock, expected));
        }
        if opp.voltage < before.voltage {
            let expected = format!("at least the voltage {} of the one before", before.voltage);
            return Err(wrong(&key("voltage"), opp.voltage, expected));
        }
        if opp.power_limit < before.power_limit {
            let expected = format!("at least the power {} of the one before", before.power_limit);
            return Err(wrong(&key("power_limit"), opp.power_limit, expected));
        }
    }
    Ok(())
}

fn check_controller(chip: &Chip) -> Result<(), Wrong> {
    let c = &chip.controller;
    span("controller.sample_period", c.sample_period, Span::us(10), Span::s(10))?;
    span("controller.idle_off_delay", c.idle_off_delay, Span::us(10), Span::s(3600))?;
    if c.base_pstate == 0 || usize::from(c.base_pstate) > chip.pstates.len() {
        let expected = format!("a p-state from 1 to {}", chip.pstates.len());
        return Err(wrong("controller.base_pstate", c.base_pstate, expected));
    }
    for (key, value, least, most) in [
        ("target_utilization_pct", c.target_utilization_pct, 1.0, 100.0),
        ("filter_periods", c.filter_periods, 1.0, 1e6),
        ("proportional_gain", c.proportional_gain, 0.0, 1e4),
        ("integral_gain", c.integral_gain, 0.0, 1e4),
        ("output_limit_pct", c.output_limit_pct, 0.0, 1e9),
        ("filter_start_pct", c.filter_start_pct, 0.0, 100.0),
        ("boost_min_utilization_pct", c.boost_min_utilization_pct, 1.0, 100.0),
        ("boost_step_pct", c.boost_step_pct, 0.0, 100.0),
        ("boost_periods_burst", c.boost_periods_burst, 1.0, 1e6),
        ("boost_periods", c.boost_periods, 1.0, 1e6),
        ("lasting_boost_periods", c.lasting_boost_periods, 0.0, 1e9),
        ("lasting_boost_periods_burst", c.lasting_boost_periods_burst, 0.0, 1e9),
        ("boost_rise", c.boost_rise, 0.0, 1.0),
        ("boost_fade", c.boost_fade, 0.0, 1.0),
    ] {
        number(&format!("controller.{key}"), value, least, most)?;
    }
    span("controller.forget_after", c.forget_after, Span::ZERO, Span::s(3600))?;
    span("controller.credited_gap", c.credited_gap, Span::ZERO, Span::s(1))?;
    span("controller.burst", c.burst, Span::ZERO, Span::s(3600))
}

fn check_host(chip: &Chip) -> Result<(), Wrong> {
    let h = &chip.host;
    let most = Span::s(1);
    span("host.commit_to_start", h.commit_to_start, Span::ZERO, most)?;
    span("host.commit_to_firmware", h.commit_to_firmware, Span::ZERO, h.commit_to_start)?;
    span("host.buffer_gap", h.buffer_gap, Span::ZERO, most)?;
    span("host.completion_to_host", h.completion_to_host, Span::ZERO, most)?;
    within("host.submission_energy", h.submission_energy.as_mj(), 0.0, 1e6, " mJ")
}

fn check_wake(chip: &Chip) -> Result<(), Wrong> {
    let w = &chip.wake;
    if w.start.is_empty() {
        return Err(wrong("wake.start", "empty", "at least one { idle, latency }"));
    }
    for (n, start) in w.start.iter().enumerate() {
        let key = |name: &str| format!("wake.start.{n}.{name}");
        let least = chip.host.commit_to_start;
        span(&key("latency"), start.latency, least, Span::s(60))?;
        let Some(before) = n.checked_sub(1).map(|m| w.start[m]) else { continue };
        if start.idle <= before.idle {
            let expected = format!("idle times in ascending order: more than {}", before.idle);
            return Err(wrong(&key("idle"), start.idle, expected));
        }
    }
    span("wake.unwired_after", w.unwired_after, Span::ZERO, Span::MAX)?;
    within("wake.wiring_rate", w.wiring_rate.as_gb_s(), 1e-3, 1e9, " GB/s")?;
    span("wake.memory_ready", w.memory_ready, Span::ZERO, Span::s(1))?;
    span("wake.deep_idle_after", w.deep_idle_after, chip.controller.idle_off_delay, Span::MAX)?;
    span("wake.deep_idle_stall", w.deep_idle_stall, Span::ZERO, Span::s(1))
}

fn check_power(chip: &Chip) -> Result<(), Wrong> {
    let p = &chip.power;
    within("power.off", p.off.as_w(), 0.0, 1e4, " W")?;
    within("power.idle", p.idle.as_w(), p.off.as_w(), 1e4, " W")?;
    within("power.full", p.full.as_w(), p.idle.as_w(), 1e4, " W")?;
    number("power.memory_share", p.memory_share, 0.0, 1.0)
}

fn check_kernels(chip: &Chip) -> Result<(), Wrong> {
    let k = &chip.kernels;
    span("kernels.overhead", k.overhead, Span::ZERO, Span::ms(100))?;
    span("kernels.empty", k.empty, Span::us(1), Span::ms(100))?;
    within("kernels.overhead_cycles", k.overhead_cycles.as_n(), 0.0, 1e9, " cycles")?;
    within("kernels.fma_cycles", k.fma_cycles.as_n(), 0.01, 1e6, " cycles")?;
    number("kernels.fma_threads_per_cycle", k.fma_threads_per_cycle, 0.01, 1e9)?;
    within("kernels.matmul_cycles", k.matmul_cycles.as_n(), 0.0, 1e6, " cycles")?;
    number("kernels.flops_per_cycle", k.flops_per_cycle, 0.01, 1e9)?;
    number("kernels.beside_share", k.beside_share, 0.0, 1.0)?;
    within("kernels.bandwidth", k.bandwidth.as_gb_s(), 1e-3, 1e6, " GB/s")
}

/// Coefficients that can be; whether their limits make sense is held with the p-states.
pub(crate) fn check_power_model(model: &PowerModel) -> Result<(), Wrong> {
    number("power_model.clusters", model.clusters.into(), 1.0, 1000.0)?;
    number("power_model.cores_per_cluster", model.cores_per_cluster.into(), 1.0, 1e6)?;
    let sram = model.sram_voltage_min.as_v();
    within("power_model.sram_voltage_min", sram, 0.0, 10.0, " V")?;
    for (key, value, most) in [
        ("core_leakage", model.core_leakage, 1e9),
        ("sram_leakage", model.sram_leakage, 1e9),
        ("core_exponent", model.core_exponent, 100.0),
        ("core_factor", model.core_factor, 1e6),
        ("sram_exponent", model.sram_exponent, 100.0),
        ("sram_factor", model.sram_factor, 1e6),
        ("core_switching", model.core_switching, 1e6),
        ("sram_switching", model.sram_switching, 1e6),
        ("current_max", model.current_max, 1e6),
    ] {
        number(&format!("power_model.{key}"), value, 0.0, most)?;
    }
    let Some(cs) = &model.cs else { return Ok(()) };
    number("power_model.cs.dies", cs.dies.into(), 1.0, 1000.0)?;
    if cs.pstates.is_empty() {
        return Err(wrong("power_model.cs.pstates", "empty", "at least one { clock, voltage }"));
    }
    for (key, value, most) in [
        ("leakage", cs.leakage, 1e9),
        ("exponent", cs.exponent, 100.0),
        ("factor", cs.factor, 1e6),
        ("switching", cs.switching, 1e6),
    ] {
        number(&format!("power_model.cs.{key}"), value, 0.0, most)?;
    }
    for (n, point) in cs.pstates.iter().enumerate() {
        let key = |name: &str| format!("power_model.cs.pstates.{n}.{name}");
        within(&key("clock"), point.clock.as_mhz(), 0.0, 1e5, " MHz")?;
        within(&key("voltage"), point.voltage.as_v(), 0.0, 10.0, " V")?;
    }
    Ok(())
}

fn span(path: &str, value: Span, least: Span, most: Span) -> Result<(), Wrong> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(wrong(path, value, format!("a duration from {least} to {most}")))
}

fn number(path: &str, value: f64, least: f64, most: f64) -> Result<(), Wrong> {
    within(path, value, least, most, "")
}

fn within(path: &str, value: f64, least: f64, most: f64, unit: &str) -> Result<(), Wrong> {
    if value >= least && value <= most {
        return Ok(());
    }
    // Three hundred digits help nobody.
    let shown = match value == 0.0 || (1e-6..1e15).contains(&value.abs()) {
        true => value.to_string(),
        false => format!("{value:e}"),
    };
    Err(wrong(path, shown + unit, format!("{least}{unit} to {most}{unit}")))
}
